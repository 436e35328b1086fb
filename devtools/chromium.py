"""The Chromium that tests and measurements drive."""

import os
import shutil
from typing import Final

ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--renderer-process-limit=1",
)
NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The names of the browser. The first is its headless build, which needs half the processor time."""
MISSING: Final = "Chromium is missing: `make test-deps` installs it, or set REDLINE_CHROMIUM"


def find_chromium() -> str | None:
    """The path of the browser: `$REDLINE_CHROMIUM`, otherwise the first on the path; None if there is none."""
    named = os.environ.get("REDLINE_CHROMIUM")
    if named:
        return shutil.which(named)
    found = (shutil.which(name) for name in NAMES)
    return next((path for path in found if path), None)
