"""What tests share: a data directory of their own, real sessions or generated ones, and small sessions by hand."""

from __future__ import annotations

import os
import tempfile

# Before Django reads its settings: no test ever touches the user's own data.
os.environ["REDLINE_DATA_DIR"] = tempfile.mkdtemp(prefix="redline-tests-")
os.environ["HOME"] = tempfile.mkdtemp(prefix="redline-home-")
