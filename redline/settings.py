"""Django's settings. Those that users can change are in `configuration`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from redline import configuration

from .checkout import DEVELOPER_TOOLS, DIRECTORY as BASE_DIR

_LINK: Final = Path("/etc/localtime")
_DATABASE: Final = "/zoneinfo/"


def local_zone(environment: Mapping[str, str] = os.environ, link: Path = _LINK) -> str:
    """The time zone named by `TZ`, or that of the computer; UTC if it has no known name."""
    if environment.get("TZ"):
        return _known(environment["TZ"].removeprefix(":"))
    _, _, name = os.path.realpath(link).partition(_DATABASE)
    return _known(name)


def _known(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return "UTC"


# In a checkout templates and static files are at the top; in a wheel they are in this package.
PAGES_DIR = BASE_DIR / "redline" if (BASE_DIR / "redline" / "templates").is_dir() else BASE_DIR
REDLINE_DATA_DIR = configuration.data_directory()
REDLINE, REDLINE_FAULTS = configuration.load(REDLINE_DATA_DIR)
REDLINE_SOURCES = configuration.sources(REDLINE_DATA_DIR, REDLINE_FAULTS)
REDLINE_MISSPELT = configuration.misspelt()
REDLINE_FILE_NAME = configuration.FILE_NAME
REDLINE_APPS = ["sessions_app", "compaction_app", *(["lab_app"] if REDLINE.lab else [])]
# Each with the setting that brings it back. What it recorded stays in the database.
REDLINE_APPS_LEFT_OUT = {} if REDLINE.lab else {"lab_app": "lab = true"}

SECRET_KEY = configuration.secret_key(REDLINE_DATA_DIR)
DEBUG = False
# Of all names below localhost, `sessions_app.web.credentials` admits only the secret one, which can change.
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", ".localhost"]
# Whether browsers are admitted without that name: `redline serve --plain`.
REDLINE_PLAIN = False
INSTALLED_APPS = [
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_htmx",
    "template_partials",
    *REDLINE_APPS,
    *DEVELOPER_TOOLS,
]
MIDDLEWARE = [
    # Headers first, so that a refusal has them too; then foreign hosts are refused, whatever the path.
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "sessions_app.web.middleware.UncachedMiddleware",
    "sessions_app.web.middleware.HostMiddleware",
    "django.middleware.common.CommonMiddleware",
    "sessions_app.web.middleware.StaticMiddleware",
    "sessions_app.web.middleware.LaunchMiddleware",
    "sessions_app.web.middleware.BodyMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "sessions_app.web.pages.FailureMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PAGES_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "template_partials.loader.Loader",
                    [("django.template.loaders.cached.Loader", ["sessions_app.web.template_loader.Loader"])],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.messages.context_processors.messages",
                "compaction_app.runs.unseen_proposals.badge",
                "compaction_app.pages.handshakes.waiting_on_page",
                "sessions_app.web.pages.theme",
                "redline.page_help.page_help",
            ],
            "builtins": [
                "compaction_app.templatetags.addresses",
                "compaction_app.templatetags.rendered",
                "sessions_app.templatetags.components",
                "sessions_app.templatetags.formatting",
            ],
        },
    }
]
STATIC_URL = "/static/"
STATICFILES_DIRS = [PAGES_DIR / "static"]
# Served from the source files: there is no build step.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}
# Imported sessions of any length are stored in files, never in memory.
FILE_UPLOAD_HANDLERS = ["sessions_app.web.uploads.SpaciousUpload"]
FILE_UPLOAD_PERMISSIONS = 0o600
# A review posts the ticked blocks of its page.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000
# The longest body of a request that is not an upload. Django keeps bodies of this length in memory, never on disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_000_000
FILE_UPLOAD_MAX_MEMORY_SIZE = 2_500_000
CSRF_COOKIE_SAMESITE = "Strict"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "sessions_app.web.pages.csrf_failure"
# "Done" messages are shown on the next page, from a signed cookie with the attributes of session cookies.
MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
SESSION_COOKIE_SAMESITE = "Strict"
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
ROOT_URLCONF = "redline.urls"
ASGI_APPLICATION = "redline.asgi.application"
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 1_000}}}
USE_TZ = True
TIME_ZONE = local_zone()
LANGUAGE_CODE = "en"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": REDLINE_DATA_DIR / configuration.DATABASE_FILE,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": REDLINE.database_seconds,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
# Set up by `sessions_app.apps`. Django's own configuration would load what draws error pages, for mails to nobody.
LOGGING_CONFIG = None
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"one_line": {"()": "sessions_app.web.server_log.OneLine"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "one_line", "level": "ERROR"},
        "server": {"class": "sessions_app.web.server_log.ServerLog"},
    },
    "root": {"handlers": ["stderr", "server"], "level": "WARNING"},
    "loggers": {"django": {"handlers": [], "level": "WARNING"}, "redline": {"level": "INFO"}},
}
