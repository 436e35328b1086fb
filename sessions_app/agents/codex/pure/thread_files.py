"""The files of a thread, taken apart from its bytes: those of the files that it is based on come before its own.

    base of the base │ base │ own        a file begins with the line that names the end of the one before it

A base is named after the id by which the next file refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.jsjson import split_lines

BASE_NAME: Final = "rollout-2026-01-01T00-00-00-{}.jsonl"
THREAD_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEADER: Final = b'"session_meta"'
_MARKS: Final = (_HEADER, b'"turn_context"', b'"thread_settings_applied"')


class ThreadFiles:
    """The files, and the settings of the thread that they record."""

    def __init__(self, name: str, content: Iterable[bytes]) -> None:
        self.model = ""
        """The latest model; empty if none is recorded."""
        self.providers: list[str] = []
        """The providers that the thread has had, the latest one last."""
        self._name = name
        self._bases: list[tuple[str, list[bytes]]] = []
        self._lines: list[bytes] = []
        self._size = 0
        for line in split_lines(content):
            self._add(line.raw + (b"\n" if line.complete else b""))

    def __iter__(self) -> Iterator[tuple[str, list[bytes]]]:
        """Each file's name, and its lines."""
        yield from self._bases
        yield self._name, self._lines

    def _add(self, raw: bytes) -> None:
        if any(mark in raw for mark in _MARKS):
            self._read(raw)
        self._lines.append(raw)
        self._size += len(raw)

    def _read(self, raw: bytes) -> None:
        line = fields.object_in(raw) or {}  # the client skips other lines too
        payload = fields.mapping(line, "payload")
        if fields.stored_text(line, "type") == "session_meta":
            self._end_base(fields.mapping(payload, "history_base"))
            self._use(fields.stored_text(payload, "model_provider"))
        elif fields.stored_text(line, "type") == "turn_context":
            self.model = fields.stored_text(payload, "model") or self.model
        else:
            settings = fields.mapping(payload, "thread_settings")
            self._use(fields.stored_text(settings, "model_provider_id"))
            self.model = fields.stored_text(settings, "model") or self.model

    def _end_base(self, base: Mapping[str, Any]) -> None:
        """Begin the next file if the lines so far are what it is based on."""
        thread_id = fields.stored_text(base, "thread_id")
        if THREAD_ID.fullmatch(thread_id) and base.get("end_byte_offset") == self._size:
            self._bases.append((BASE_NAME.format(thread_id), self._lines))
            self._lines, self._size = [], 0

    def _use(self, provider: str) -> None:
        if provider:
            self.providers = [*(one for one in self.providers if one != provider), provider]
