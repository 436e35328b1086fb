"""Runs."""

from __future__ import annotations


def give_up_dead_runs() -> None: ...


def waiting_runs() -> list[int]:
    return []
