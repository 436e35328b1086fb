"""`make bench`: measure the performance figures that Redline promises, or those that `NAMES` chooses."""

import argparse
import os
import sys

import django

from redline.main import prepare_process


def main() -> int:
    """Run the chosen benchmarks; the exit code is 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m devtools.bench", description="Measure the performance figures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which are measured (default: all)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    options = parser.parse_args()
    prepare_process()
    os.environ["DJANGO_SETTINGS_MODULE"] = "redline.command_settings"
    django.setup()
    # They need the models.
    from devtools.bench.report import measure
    from sessions_app.cli import report_failure
    from sessions_app.sessionlog.errors import RedlineError

    try:
        return 0 if measure(options.names, as_json=options.as_json) else 1
    except RedlineError as failure:
        return report_failure(failure, as_json=options.as_json)


if __name__ == "__main__":
    sys.exit(main())
