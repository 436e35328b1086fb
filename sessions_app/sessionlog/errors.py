"""What can go wrong, as the user meets it.

    RedlineError                    what happened, to which object, what was not done, what to do
    ├── BadInput            exit 2  the file, the id or the parameter cannot be used
    ├── TargetNotMet        exit 3  the plan deletes less than was asked for; nothing was written
    ├── Conflict            exit 4  the session is no longer the one that was judged; nothing was written
    ├── ConfirmationNeeded  exit 5  it can be done, but only after an explicit yes; nothing was written
    └── SystemFailure       exit 6  the disk, a permission or a lock failed

`code` is for programs and stays the same; the message is for people and names the object. A refused
deletion is not an exception: it is a value, `compaction_app.core.errors.Refusal`.
"""

from __future__ import annotations


class RedlineError(Exception):
    """Base of every error that Redline reports in words. Only its subclasses are raised."""

    exit_code = 1

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadInput(RedlineError):
    """The file, the id or the parameter cannot be used as it is."""

    exit_code = 2


class TargetNotMet(RedlineError):
    """The validated plan deletes less than was asked for. Nothing was written."""

    exit_code = 3


class Conflict(RedlineError):
    """The session changed in a way that the judged plan does not cover. Nothing was written."""

    exit_code = 4


class ConfirmationNeeded(RedlineError):
    """It can be done, but only after the explicit yes that `flag` gives. Nothing was written."""

    exit_code = 5

    def __init__(self, code: str, message: str, flag: str) -> None:
        super().__init__(code, message)
        self.flag = flag


class SystemFailure(RedlineError):
    """The disk, a permission or a lock failed. The message says what was written, if anything."""

    exit_code = 6
