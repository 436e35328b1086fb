"""The errors of a provider, as the user sees them.

    ProviderError          a run ends, keeps its targets, and can be resumed
    ├── Overflow           the conversation is longer than the model's window
    ├── QuotaUsed          the account has nothing left: a retry changes nothing
    ├── Rejected           the request was refused: the key, the model's name, an option
    ├── Unavailable        the provider is overloaded, limited or broken, even after retries
    ├── Unreachable        no server at the address, or the connection breaks before the first byte
    ├── Broken             the answer broke off, or is not of this dialect
    └── TimedOut           too long without a connection, a first byte, or a next event

A message quotes the provider's words, cut and on one line, and never contains a key.
"""

from __future__ import annotations

from sessions_app.sessionlog.errors import RedlineError


class ProviderError(RedlineError):
    """Base of the errors of a provider. Exit code 6, as for a system failure.

    `what` states what happened, `advice` what to do about it; the message is both.
    """

    exit_code = 6

    def __init__(self, code: str, what: str, advice: str = "") -> None:
        super().__init__(code, f"{what} {advice}".rstrip())
        self.what = what
        self.advice = advice


class Overflow(ProviderError):
    """The conversation with the model is longer than its window."""


class QuotaUsed(ProviderError):
    """The account's quota or credit is used up."""


class Rejected(ProviderError):
    """The provider refuses the request: the key, the model's name or an option."""


class Unavailable(ProviderError):
    """The provider cannot answer now."""


class Unreachable(ProviderError):
    """No connection, or one that breaks before the first byte."""


class Broken(ProviderError):
    """The answer broke off in the middle, or cannot be read."""


class TimedOut(ProviderError):
    """The provider was silent for too long."""
