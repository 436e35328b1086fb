"""The environment of the tests, set on import before Django reads its settings: no test touches the user's data."""

from __future__ import annotations

import os
import tempfile

TEMPORARY_DIRECTORIES = [tempfile.mkdtemp(prefix="redline-tests-"), tempfile.mkdtemp(prefix="redline-home-")]
os.environ["REDLINE_DATA_DIR"], os.environ["HOME"] = TEMPORARY_DIRECTORIES
os.environ["DJANGO_SETTINGS_MODULE"] = "redline.settings"
# Without the user's keys no test can send a request to a provider, or depend on the machine's configuration.
for _provider in ("ANTHROPIC", "OPENAI", "OPENROUTER"):
    for _name in ("API_KEY", "BASE_URL"):
        os.environ.pop(f"{_provider}_{_name}", None)
