"""All hostile texts in two: one that acts alone acts in company as well, and an address acts only at the beginning."""

from typing import Final

from tests.html import HOSTILE_TEXTS

_SCRIPT, _IMAGE, _ADDRESS, *_CHARACTERS, _TEMPLATE, _NUL, _LONE = HOSTILE_TEXTS
TOGETHER: Final = (f"{_ADDRESS} {_SCRIPT} {_IMAGE} {_TEMPLATE}", " ".join([*_CHARACTERS, _NUL, _LONE]))
