"""The only place that declares a text of a session safe."""

from django import template
from django.utils.safestring import SafeString, mark_safe

from compaction_app.rendering.markup import Markup

register = template.Library()


@register.filter
def rendered(markup: Markup) -> SafeString:
    """Rendered text unchanged, since it was sanitized; anything else is refused."""
    if not isinstance(markup, Markup):
        raise TypeError("Only sanitized markup is shown as it is.")
    return mark_safe(markup)  # noqa: S308
