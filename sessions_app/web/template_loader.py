"""Templates without their indentation, which is for people who edit them, and would be 20 to 40% of a page's bytes."""

import re
from typing import Final

from django.template import Origin
from django.template.loaders import filesystem

_INDENTATION: Final = re.compile(r"^ +", re.MULTILINE)


class Loader(filesystem.Loader):
    """Loads templates from `DIRS`. Their line numbers, and white space within a line, stay as they are."""

    def get_contents(self, origin: Origin) -> str:
        return _INDENTATION.sub("", super().get_contents(origin))
