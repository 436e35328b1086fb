"""Which sessions are due, as queries: the rule of `Session.due` on rows."""

from __future__ import annotations

from typing import Final

from django.db.models import F, Q

from sessions_app.sessionlog.overflow import ANY_WINDOW

OVERFLOWN: Final = Q(overflow__gte=ANY_WINDOW) | Q(overflow__gte=F("window"))
"""The last assistant said that the context was too long."""
PAST_THRESHOLD: Final = Q(context_tokens__gt=F("window") - F("reserve_tokens"))
DUE: Final = PAST_THRESHOLD | OVERFLOWN
