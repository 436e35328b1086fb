"""Search patterns, on a linear-time engine. Transcripts are hostile and long: nothing here may backtrack.

`^` and `$` match only at the start and end of the whole text, and case is ignored unless requested otherwise. Syntax
that RE2 lacks (back-references, look-around) is refused.
"""

from typing import Final

import re2

from sessions_app.sessionlog.jsjson import utf16_length, well_formed

from .gates import Code, Refusal

PATTERN_LENGTH: Final = 512
"""The maximum length of a pattern, in UTF-16 code units."""


class Pattern:
    """A compiled pattern. Texts are searched as UTF-8, in which a lone surrogate is U+FFFD."""

    def __init__(self, compiled: re2._Regexp) -> None:
        self._compiled = compiled

    def found_in(self, text: str) -> bool:
        return self._compiled.search(_encode(text)) is not None

    def index_in(self, text: str) -> int | None:
        """The start of the first match, in UTF-16 code units; None if there is none."""
        encoded = _encode(text)
        match = self._compiled.search(encoded)
        if match is None:
            return None
        start: int = match.start()
        return start if len(encoded) == len(text) else utf16_length(encoded[:start].decode())


def compile_pattern(pattern: str, *, regex: bool, case_sensitive: bool) -> Pattern | Refusal:
    """The pattern ready to search with; a refusal if it is empty, too long or beyond the engine."""
    if utf16_length(pattern) > PATTERN_LENGTH:
        return Refusal(
            Code.PATTERN_TOO_LONG,
            f"The pattern has more than {PATTERN_LENGTH} characters. Nothing was searched. Use a shorter one.",
        )
    if not pattern:
        return Refusal(Code.INVALID_PATTERN, "An empty pattern matches everything. Nothing was searched.")
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.literal = not regex
    options.log_errors = False
    try:
        return Pattern(re2.compile(well_formed(pattern), options=options))
    except re2.error as fault:
        reason = fault.args[0].decode("utf-8", "replace") if isinstance(fault.args[0], bytes) else fault.args[0]
        return Refusal(
            Code.INVALID_PATTERN,
            f"The pattern cannot be used: {reason}. Nothing was searched. Look-around and back-references are not "
            "supported; a literal pattern (regex false) always works.",
        )


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()
