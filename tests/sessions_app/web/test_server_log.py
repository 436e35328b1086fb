"""The log is private and bounded, has one line for each record, and contains no text of a session."""

import logging
import stat
from pathlib import Path

from sessions_app.sessionlog.errors import BadInput
from sessions_app.web import server_log
from sessions_app.web.server_log import OneLine, kept_log
from tests.html import missing
from tests.installation import UNSAFE_CHARACTERS

HOSTILE = "/sessions/%1b%5b31m%0a2026-01-01T00:00:00.000Z%20ERROR%20django.request%20forged%e2%80%ae"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_hostile_path_or_host_stays_on_its_line(redline, browser):
    with kept_log(redline.data) as path:
        assert browser.get(HOSTILE).status_code == 404
        browser.get("/", headers={"host": "evil\x1b[2J.example"})
    logged = lines(path)
    assert [line for line in logged if "forged" in line] == [line for line in logged if "Not Found" in line]
    assert any("evil" in line for line in logged)
    assert not UNSAFE_CHARACTERS.search(path.read_text(encoding="utf-8").replace("\n", ""))


def test_the_server_keeps_a_private_log(shared_server):
    path = shared_server.data / "logs" / server_log.FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    logged = path.read_text(encoding="utf-8")
    assert "serving on port" in logged
    assert not UNSAFE_CHARACTERS.search(logged.replace("\n", ""))
    assert shared_server.address.partition("token=")[2] not in logged


def test_the_log_has_the_place_of_an_unexpected_failure_but_no_text_of_a_session(redline):
    with kept_log(redline.data) as path:
        for raised in (ValueError("a secret of a session"), BadInput("its_code", "a secret"), OSError(28, "No space")):
            try:
                raise raised  # noqa: TRY301  # the test reads what is logged of it
            except Exception:
                logging.getLogger("redline").exception("could not be shown\nbecause")
    logged = path.read_text(encoding="utf-8")
    assert "secret" not in logged
    assert logged.count("could not be shown\\x0abecause") == 3
    assert not missing(logged, Path(__file__).name, "  ValueError\n", "BadInput its_code", "OSError: No space")


def test_the_log_rotates_and_stays_private(redline, monkeypatch):
    monkeypatch.setattr(server_log, "FILE_BYTES", 2_000)
    with kept_log(redline.data) as path:
        for number in range(200):
            logging.getLogger("redline").warning("line %d %s", number, "x" * 100)
    kept = sorted(path.parent.iterdir())
    assert len(kept) == 1 + server_log.OLD_FILES
    assert all(file.stat().st_size <= 2_000 for file in kept)
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    assert "line 199" in lines(path)[-1]


def test_a_long_message_is_cut():
    record = logging.LogRecord("redline", logging.ERROR, "x", 1, "y" * 100_000, None, None)
    assert len(OneLine().format(record)) == server_log.LONGEST


def refuse(number: int, second: float) -> None:
    """Log that a request was refused at this time."""
    named = (number, "x" * 2_000)
    record = logging.LogRecord("django.request", logging.WARNING, "x", 1, "Forbidden: /%d%s", named, None)
    record.created = second
    logging.getLogger("root").handle(record)


def test_refused_requests_do_not_flood_the_log(redline):
    """Any number of refusals within ten minutes leaves some lines; the count restarts every ten minutes."""
    with kept_log(redline.data) as path:
        logging.getLogger("redline").info("serving")
        for number in range(5_000):
            refuse(number, 1_000)
        refuse(1, 1_000 + server_log.REFUSAL_SECONDS)
        logging.getLogger("redline").error("something else")
    logged = lines(path)
    assert len(logged) == server_log.MOST_REFUSALS + 4
    assert len(path.read_bytes()) < 10_000
    assert "serving" in logged[0]
    assert f"{5_000 - server_log.MOST_REFUSALS} more requests were refused" in logged[-3]
    assert "something else" in logged[-1]


def test_refusals_that_were_not_logged_are_counted_at_the_end_after_which_nothing_is_logged(redline):
    with kept_log(redline.data) as path:
        for number in range(100):
            refuse(number, 1_000)
    logging.getLogger("redline").warning("too late")
    assert "80 more requests were refused" in lines(path)[-1]


def test_every_internal_error_is_logged(redline):
    with kept_log(redline.data) as path:
        for number in range(200):
            logging.getLogger("django.request").error("Internal Server Error: /%d", number)
    assert len(lines(path)) == 200
