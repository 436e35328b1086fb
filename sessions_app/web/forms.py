"""Base classes shared by the forms of several pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms

from sessions_app.cli import printable
from sessions_app.sessionlog.errors import BadInput


class FormInvalid(BadInput):
    """A form with errors, and the action that was not done. The message is for commands, and for pages that do not show
    the fields."""

    def __init__(self, form: forms.BaseForm, not_done: str = "Nothing was changed.") -> None:
        errors = [str(message) for messages in form.errors.values() for message in messages]
        super().__init__("misfilled", f"{' '.join(errors)} {not_done}")
        self.form, self.not_done = form, not_done


def require_valid(form: forms.BaseForm, not_done: str = "Nothing was changed.") -> None:
    """Raise FormInvalid if the form has errors."""
    if not form.is_valid():
        raise FormInvalid(form, not_done)


class InlineField(forms.BoundField):
    """A field for the tag `field`: its id is its name, and control characters in its value are visible."""

    @property
    def auto_id(self) -> str:
        return self.html_name

    @property
    def aria_describedby(self) -> str:
        return f"{self.auto_id}-of"

    def value(self) -> Any:
        value = super().value()
        return printable(value) if isinstance(value, str) else value


class CheckedField(forms.CharField):
    """Text that a function checks and converts. Empty text is checked only if the field is required."""

    def __init__(self, check: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self.check = check

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        try:
            return self.check(text) if text or self.required else ""
        except BadInput as refused:
            raise forms.ValidationError(refused.message) from refused
