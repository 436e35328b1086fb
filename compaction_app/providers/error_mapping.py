"""The errors that a provider reports instead of an answer, and their meaning: one `ProviderError` in words.

| it reports                                                  | it means                        | retried     |
|-------------------------------------------------------------|---------------------------------|-------------|
| 413, or that the input is too long                          | Overflow                        | no          |
| 402, or that quota, credit or a spending limit is used up   | QuotaUsed                       | no          |
| 401                                                         | Rejected: the key               | no          |
| 404 or 400, and mentions the model                          | Rejected: the model's name      | no          |
| that the model does not support tools                       | Rejected: cannot plan           | no          |
| 404 or 405 otherwise, 3xx, a web page                       | Rejected: not this dialect      | no          |
| 408, 409, 429, 5xx, or one of these inside an answer        | Unavailable                     | yes         |
| any other status                                            | Rejected                        | no          |
| an error inside an answer that is none of these             | Broken                          | no          |

    ProviderError          a run ends, keeps its targets, and can be resumed
    ├── Overflow           the conversation is longer than the model's window
    ├── QuotaUsed          the account has nothing left: a retry changes nothing
    ├── Rejected           the request was refused: the key, the model's name, an option
    ├── Unavailable        the provider is overloaded, limited or broken, even after retries
    ├── Unreachable        no server at the address, or the connection breaks before the first byte
    ├── Broken             the answer broke off, or is not of this dialect
    └── TimedOut           too long without a connection, a first byte, or a next event

Providers echo requests. A message quotes the provider's words on one line, cut, and never contains a key: `KeyForms`
finds and hides the forms in which a provider may echo it, as far as this is cheap. Texts are compared by their letters
and digits only, without case: so `sk-1`, `S K 1` and `s.k.-.1` are the same, and one search finds a form with any
separators, line breaks and alphabet variants.

| form                       | for the key `sk-…`                     | its letters and digits begin with |
|----------------------------|----------------------------------------|-----------------------------------|
| as it is, spaced           | `s k - …`                              | `sk`                              |
| reversed                   | `…-ks`                                 | its last ones                     |
| percent-encoded            | `a%2Bb`, `%73%6B`                      | `a2bb`, `736b`                    |
| hexadecimal                | `736b`, `73:6B`                        | `736b`                            |
| escaped                    | `\\u0073`, `\\x73`, `&#x73;`, `0x73`     | `u0073`, `x73`, `0x73`            |
| decimal                    | `115, 107`, `&#115;`                   | `115107`                          |
| base64, also inside other  | three alignments, both alphabets       | what the key alone decides        |
| data                       |                                        |                                   |

Not found: pieces of a key, letters inserted between its own, a list of one-character strings, two encodings on top of
each other, ciphers, compression, and other encodings.
"""

import base64
import json
import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

from sessions_app.sessionlog.context import tells_overflow
from sessions_app.sessionlog.errors import RedlineError

from .types import Dialect, Endpoint


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


# ---- the forms of a key ----------------------------------------------------------------------------------

SHORTEST: Final = 12
"""The minimum number of letters and digits of a key: fewer could be any text."""
GAP: Final = 16
"""The maximum number of separators between two letters of a form."""
_HEAD: Final = 8
_SEPARATOR: Final = r"(?:\\[nrt]|[^A-Za-z0-9])"
"""In JSON text a line break is also a separator."""
_SEPARATORS: Final = re.compile(_SEPARATOR)
_LETTER: Final = re.compile(r"\\[nrt]|([A-Za-z0-9])")


class KeyForms:
    """The forms of one key."""

    def __init__(self, key: str) -> None:
        forms = map(_letters, _forms(key)) if len(_letters(key)) >= SHORTEST else ()
        self._forms = tuple(dict.fromkeys(forms))
        self._longest = max(map(len, self._forms), default=0)

    def hide(self, text: str, shown: str) -> str:
        """The text with each form of the key replaced by `shown`."""
        letters = _letters(text)
        for form in self._forms:
            if form in letters:
                # The pattern is compiled when it is needed, which is rare.
                between = f"{_SEPARATOR}{{0,{GAP}}}"
                text = re.sub(between.join(form), lambda _: shown, text, flags=re.IGNORECASE | re.ASCII)
        return text

    def held(self, text: str) -> int:
        """The number of characters at the end of a text that could be the beginning of a form."""
        letters, places = _last_letters(text, self._longest)
        size = max((_overlap(letters, form) for form in self._forms), default=0)
        return len(text) - places[-size] if size else 0


def _forms(key: str) -> Iterable[str]:
    data = key.encode()
    yield key
    yield key[::-1]
    yield quote(key, safe="")
    for written in ("{:02x}", "x{:02x}", "0x{:02x}", "u{:04x}", "{:d}"):
        yield "".join(map(written.format, data))
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        # A character that also depends on a neighbour of the key is not part of it.
        last = len(encoded) - bool((before + len(data)) % 3)
        yield encoded[-(-before * 8 // 6) : last]


def _letters(text: str) -> str:
    return _SEPARATORS.sub("", text).lower()


def _last_letters(text: str, most: int) -> tuple[str, list[int]]:
    """The last letters and digits of a text, at most `most` and without a wide gap, and the position of each."""
    start = max(0, len(text) - most * (2 * GAP + 1))
    letters: list[str] = []
    places: list[int] = []
    end = start
    for found in _LETTER.finditer(text, start):
        if found[1] is None:
            continue
        if found.start() - end > 2 * GAP:
            letters, places = [], []
        letters.append(found[1].lower())
        places.append(found.start())
        end = found.end()
    if len(text) - end > 2 * GAP:
        return "", []
    return "".join(letters[-most:]), places[-most:]


def _overlap(letters: str, form: str) -> int:
    """The number of last letters that are the beginning of a form, but not all of it."""
    head = form[:_HEAD]
    at = letters.find(head, max(0, len(letters) - len(form) + 1))
    while at >= 0:
        if form.startswith(letters[at:]):
            return len(letters) - at
        at = letters.find(head, at + 1)
    return next((size for size in range(min(_HEAD - 1, len(letters)), 0, -1) if form.startswith(letters[-size:])), 0)


# ---- errors as they are reported -------------------------------------------------------------------------

QUOTED_CHARACTERS: Final = 300
READ_CHARACTERS: Final = 4_000
"""The number of characters of a provider's message that are read, before it is cut for quoting."""
SHOWN_OF_KEY: Final = 4
_FRAGMENT: Final = 8
"""Pieces of a key with at least this many characters are hidden."""
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_USED_UP: Final = re.compile(
    r"insufficient_quota|billing_hard_limit_reached|billing_not_active|billing_error|exceeded your current quota"
    r"|credit balance is too low|insufficient (?:credits?|balance|funds)|requires more credits|never purchased credits"
    r"|reached your specified api usage limits|(?:key|spend(?:ing)?|usage) limit (?:exceeded|reached)"
    r"|account[^.]{0,40}(?:suspended|not active|deactivated)"
)
_TOO_LONG: Final = re.compile(
    # A request larger than the tokens of a whole minute never succeeds, whatever the status says.
    r"request too large for [^.]{1,100} tokens per min|n_keep[^.]{0,20}>= ?n_ctx|model_context_window_exceeded"
)
_NO_TOOLS: Final = re.compile(
    r"do(?:es)?(?: not|n't) support tool|no endpoints found that support tool"
    r"|tools? (?:use |calling )?(?:is|are) not supported"
    r"|support for tools|enable-auto-tool-choice|--jinja"
)
_NO_MODEL: Final = re.compile(
    r"model_not_found|not a valid model|invalid model|unknown model|no such model|unsupported model|no models loaded"
    r"|\bmodel\b.{1,200}(?:not found|do(?:es)?(?: not|n't) exist)"
)
_LIKE_STATUS: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens": 429,
    "requests": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
    "overloaded": 529,
}
"""Kinds of errors, as both dialects name them, with the status each has outside of a stream."""
_AGAIN: Final = frozenset({408, 409, 429})
_NOT_NOW: Final[Mapping[int, tuple[str, str]]] = {
    429: ("rate_limited", "takes no more requests for a while"),
    529: ("overloaded", "is overloaded"),
}


@dataclass(frozen=True, slots=True)
class ProviderFault:
    """An error as a provider reports it, in either dialect."""

    status: int
    """The HTTP status, or the one that the error would have had; 0 if unknown."""
    kind: str
    """Its type and code, as received."""
    words: str

    @property
    def passes(self) -> bool:
        """Whether its status is temporary."""
        return self.status in _AGAIN or 500 <= self.status < 600


class Reported(Exception):
    """The answer is an error that the provider reports."""

    def __init__(self, fault: ProviderFault) -> None:
        super().__init__(fault.kind)
        self.fault = fault


class Unreadable(Exception):
    """The answer is not of this dialect; the text gives the reason, and quotes nothing of it."""


# ---- reading an error ------------------------------------------------------------------------------


def fault_in(value: object, status: int = 0) -> ProviderFault | None:
    """The error in a JSON value, or None if it is not one. `status` is that of the answer, 0 inside a stream."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if not error and (status or "error" in (value.get("object"), value.get("type"))):
        error = value
    if not error:
        return None
    if not isinstance(error, dict):
        error = {"message": error}
    named = (error.get(name) for name in ("type", "code", "status"))
    kinds = [str(one) for one in named if isinstance(one, str | int) and not isinstance(one, bool)]
    return ProviderFault(status or _like(kinds), " ".join(kinds), _words(error))


def fault_of(status: int, is_page: bool, body: bytes) -> ProviderFault:
    """The error of an answer with this status, whatever its body."""
    text = body.decode("utf-8", "replace")
    try:
        found = fault_in(json.loads(text), status)
    except (ValueError, RecursionError):
        found = None
    return found or ProviderFault(status, "", "" if is_page else text[:READ_CHARACTERS])


def _like(kinds: list[str]) -> int:
    for kind in kinds:
        if kind in _LIKE_STATUS:
            return _LIKE_STATUS[kind]
        if kind.isascii() and kind.isdigit() and len(kind) == 3:
            return int(kind)
    return 0


def _words(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "error", "msg"):
        value = error.get(name)
        if value:
            text = value if isinstance(value, str) else _printed(value)
            metadata = error.get("metadata")
            # OpenRouter says “Provider returned error” and adds the model's own words.
            raw = metadata.get("raw") if isinstance(metadata, dict) else None
            return text[:READ_CHARACTERS] + (f" {raw[:READ_CHARACTERS]}" if isinstance(raw, str) else "")
    return ""


def _printed(value: object) -> str:
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return ""


# ---- the meaning ----------------------------------------------------------------------------------------


def error_of(fault: ProviderFault, endpoint: Endpoint, model: str) -> ProviderError:
    """The meaning of a reported error for the user, in words without a key."""
    who, text = endpoint.host, f"{fault.kind} {fault.words}"[:READ_CHARACTERS].lower()
    quote = quoted(fault.words or fault.kind, endpoint.key)
    named = shortened(model, endpoint.key)
    status = f" ({fault.status})" if fault.status else ""
    if fault.status == 402 or _USED_UP.search(text):
        return QuotaUsed(
            "quota_used",
            f"{who} reports that the account's quota or credit is used up{status}{quote}. The request was not retried.",
            "Add credit there, or choose another model.",
        )
    is_too_large = fault.status == 413 or (fault.status != 429 and tells_overflow(text))
    if is_too_large or _TOO_LONG.search(text):
        return Overflow(
            "overflow",
            f"The conversation is too long for {named} at {who}{status}{quote}. The request was not retried.",
            "Choose a model with a larger window, or correct the window on the Models page.",
        )
    if fault.passes and not _NO_TOOLS.search(text):
        code, what = _NOT_NOW.get(fault.status, ("unavailable", "cannot answer now"))
        return Unavailable(code, f"{who} {what}{status}{quote}.", "Try again later, or choose another model.")
    if fault.status:
        return _rejected(fault.status, text, endpoint, named, f"{status}{quote}")
    return Broken("broken", f"{who} ended its answer with an error{quote}. Its calls were not run.", "Try again.")


def _rejected(status: int, text: str, endpoint: Endpoint, model: str, quote: str) -> Rejected:
    who = endpoint.host
    if status == 401:
        return Rejected(
            "wrong_key" if endpoint.key else "no_key",
            f"{who} {'refuses the key' if endpoint.key else 'wants a key'}{quote}. Nothing was answered.",
            "Check it on the Models page or in the environment.",
        )
    if _NO_TOOLS.search(text):
        return Rejected(
            "no_tools",
            f"{model} at {who} does not support tools{quote}, and a planner acts only through tools.",
            "Choose another model.",
        )
    if (status == 404 and "model" in text) or (status in (400, 422) and _NO_MODEL.search(text)):
        return Rejected(
            "unknown_model",
            f"{who} has no model {model}{quote}. Nothing was answered.",
            "Check its name on the Models page.",
        )
    if status in (404, 405):
        return not_this_dialect(endpoint, quote)
    if status == 403:
        return Rejected(
            "not_allowed",
            f"{who} does not allow this{quote}. Nothing was answered.",
            "Check what the key may do.",
        )
    return Rejected(
        "rejected",
        f"{who} refuses the request{quote}. Nothing was answered.",
        "Check the model's options on the Models page.",
    )


def not_this_dialect(endpoint: Endpoint, quote: str) -> Rejected:
    """A server answers at the address, but not in the dialect."""
    if endpoint.dialect == Dialect.ANTHROPIC:
        where, form = "/v1/messages", "An Anthropic base URL ends before /v1"
    else:
        where, form = "/chat/completions", "An OpenAI-compatible base URL mostly ends with /v1"
    return Rejected(
        "not_this_dialect",
        f"{endpoint.host} answers, but not as {where} does{quote}.",
        f"{form}: check it and the dialect on the Models page.",
    )


# ---- quoting --------------------------------------------------------------------------------------------


def quoted(words: str, key: str) -> str:
    """A provider's message within another one: `: “…”`, or nothing if it is empty."""
    text = shortened(words, key)
    return f": “{text}”" if text else ""


def shortened(words: str, key: str) -> str:
    """Words on one line without the key and invisible characters, at most QUOTED_CHARACTERS of them."""
    # Invisible characters are removed first: they could be inside the key.
    seen = (one for one in words[:READ_CHARACTERS] if one.isspace() or unicodedata.category(one) not in _UNSEEN)
    line = without_key(" ".join("".join(seen).split()), key).rstrip(".")
    return line if len(line) <= QUOTED_CHARACTERS else line[: QUOTED_CHARACTERS - 1] + "…"


def without_key(words: str, key: str) -> str:
    """The words with `…` and the key's end instead of the key, its encoded forms, and long pieces of it."""
    if len(key) <= SHOWN_OF_KEY:
        return words
    hint = f"…{key[-SHOWN_OF_KEY:]}" if len(key) > _FRAGMENT else "…"
    words = KeyForms(key).hide(words, hint)
    length = min(_FRAGMENT, len(key))
    # Case is ignored: a host name comes back in lower case.
    lower_key, lower_words = key.translate(_LOWER), words.translate(_LOWER)
    pieces = {lower_key[start : start + length] for start in range(len(key) - length + 1)}
    hidden = bytearray(len(words))
    for start in range(len(words) - length + 1):
        if lower_words[start : start + length] in pieces:
            hidden[start : start + length] = b"\1" * length
    runs = groupby(zip(words, hidden, strict=True), key=lambda pair: pair[1])
    return "".join(hint if is_hidden else "".join(one for one, _ in run) for is_hidden, run in runs)
