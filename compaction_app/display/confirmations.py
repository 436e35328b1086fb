"""A confirmation that an action requires, as a page shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequiredConfirmation:
    """One confirmation: the form field of the checkbox, what the user confirms, and why it is required."""

    name: str
    sentence: str
    why: str
