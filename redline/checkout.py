"""The developer tools, which a checkout has beside this package, and an installed Redline does not.

They are in no wheel: PyPI has other packages with the same name, and installing both would overwrite one. For the same
reason, a package of that name that lies elsewhere is not loaded.
"""

import sys
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).resolve().parent.parent
"""The directory that contains this package: the checkout, or the directory of all installed packages."""


def _developer_tools() -> tuple[str, ...]:
    if not (DIRECTORY / "devtools" / "management" / "commands" / "check_vectors.py").is_file():
        return ()
    if str(DIRECTORY) not in sys.path:
        # An editable installation knows only the packages of the wheel.
        sys.path.insert(0, str(DIRECTORY))
    return ("devtools",)


DEVELOPER_TOOLS: Final = _developer_tools()
"""The apps of the developer tools: one in a checkout, and none otherwise."""
