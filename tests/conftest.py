"""What tests share: a data directory of their own, real sessions or generated ones, and small sessions by hand."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

from hypothesis import HealthCheck, settings

# Before Django reads its settings: no test ever touches the user's own data.
_OWN = [tempfile.mkdtemp(prefix="redline-tests-"), tempfile.mkdtemp(prefix="redline-home-")]
os.environ["REDLINE_DATA_DIR"], os.environ["HOME"] = _OWN
# Nor are its keys there: no test could ask a provider, or show what depends on whose machine it runs on.
for _provider in ("ANTHROPIC", "OPENAI", "OPENROUTER"):
    for _name in ("API_KEY", "BASE_URL"):
        os.environ.pop(f"{_provider}_{_name}", None)

# A shell's background job ignores interrupts, and would pass that on to the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something of the machine, and nothing of Redline.
settings.register_profile("redline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redline")


def pytest_unconfigure() -> None:
    for directory in _OWN:
        shutil.rmtree(directory, ignore_errors=True)
