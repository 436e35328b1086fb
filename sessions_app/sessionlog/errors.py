"""The errors that Redline reports to users.

    RedlineError                    what happened, to which object, what was not done, what to do
    ├── BadInput            exit 2  a file, id or parameter is invalid
    ├── TargetNotMet        exit 3  the plan deletes less than requested; nothing was written
    ├── Conflict            exit 4  the session has changed since it was checked; nothing was written
    ├── ConfirmationNeeded  exit 5  a confirmation is required; nothing was written
    └── SystemFailure       exit 6  the disk, a permission or a lock failed

`code` is for programs and does not change; the message is for people and names the object. A refused deletion is not an
exception but a value, `compaction_app.core.gates.Refusal`.
"""


class RedlineError(Exception):
    """Base class of all errors that Redline reports to users. Only its subclasses are raised."""

    exit_code = 1

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadInput(RedlineError):
    """A file, id or parameter is invalid."""

    exit_code = 2


class TargetNotMet(RedlineError):
    """The validated plan deletes less than requested. Nothing was written."""

    exit_code = 3


class Conflict(RedlineError):
    """The session has changed since the plan was checked. Nothing was written."""

    exit_code = 4


class ConfirmationNeeded(RedlineError):
    """The operation requires the confirmation given by `flag`. Nothing was written."""

    exit_code = 5

    def __init__(self, code: str, message: str, flag: str) -> None:
        super().__init__(code, message)
        self.flag = flag


class SystemFailure(RedlineError):
    """The disk, a permission or a lock failed. The message says what was written, if anything."""

    exit_code = 6


class Stopped(Exception):
    """The user stopped a background job."""
