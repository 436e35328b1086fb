"""Django's settings. What a user may change is in `configuration`."""

from __future__ import annotations

from pathlib import Path

from . import configuration

BASE_DIR = Path(__file__).resolve().parent.parent
REDLINE_DATA_DIR = configuration.data_directory()
REDLINE, REDLINE_FAULTS = configuration.load(REDLINE_DATA_DIR)

SECRET_KEY = configuration.secret_key(REDLINE_DATA_DIR)
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
INSTALLED_APPS = ["sessions_app", "compaction_app"]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "redline.urls"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": REDLINE_DATA_DIR / "redline.sqlite3",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
