"""The admin: every row of both apps to be looked at, and none to be changed.

Who may see a page may see this one (`LaunchMiddleware` stands before both); nobody logs in, so there are no users.
What comes from a transcript is escaped here as on every page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import BinaryField, Field, ForeignKey, JSONField, Model, QuerySet, TextField
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.views.decorators.http import require_safe

from .cli import printable
from .models import Entry, Root, Session

SHOWN_IN_LIST: Final = 120
"""Characters of a value in a list."""
SHOWN: Final = 20_000
"""Characters of a value on the page of its row."""
PAGES: Final = frozenset({"index", "app_list"})


class Onlooker:
    """Who looks at the admin, as its pages want to know it: someone without an account."""

    is_active = True
    is_staff = False
    is_anonymous = False
    is_authenticated = True
    pk = None

    def get_username(self) -> str:
        return "you"

    get_short_name = get_username

    def has_usable_password(self) -> bool:
        return False

    def has_perm(self, permission: str, row: object = None) -> bool:
        del permission, row
        return False


class ReadOnlySite(admin.AdminSite):
    """An admin without accounts, whose every page can only be looked at."""

    site_title = site_header = "Redline's records"
    index_title = "All rows, as they are. Nothing can be changed here."
    index_template = "admin/rows.html"
    site_url = "/"
    final_catch_all_view = False
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        del request
        return True

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        return super().admin_view(require_safe(view), cacheable)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return {**super().each_context(request), "user": Onlooker()}

    def get_urls(self) -> list[Any]:
        """Django's, without those of accounts and their passwords."""
        return [url for url in super().get_urls() if not isinstance(url, URLPattern) or url.name in PAGES]


site = ReadOnlySite()


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # Django's own class takes no parameter
    """Shows every field of a row but packed bytes; `bulky` fields are not loaded for a list."""

    bulky: Sequence[str] = ()
    actions = None
    show_full_result_count = False
    list_per_page = 60

    def has_add_permission(self, request: HttpRequest) -> bool:
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        del request, obj
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        del request, obj
        return True

    def has_module_permission(self, request: HttpRequest) -> bool:
        del request
        return True

    def get_urls(self) -> list[URLPattern]:
        """The list and the page of a row."""
        return [url for url in super().get_urls() if (url.name or "").endswith(("_changelist", "_change"))]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        packed = [field.name for field in self.opts.concrete_fields if isinstance(field, BinaryField)]
        return super().get_queryset(request).defer(*self.bulky, *packed)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        del request
        shown = self._shown_fields(self.bulky)
        return [_column(field, SHOWN_IN_LIST) for field in shown if not isinstance(field, JSONField)]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> TemplateResponse:
        """The page of a row: a table of its fields. Django's has a form, and needs tables that are not there."""
        del form_url, extra_context
        row = self.get_object(request, unquote(object_id or ""))
        if row is None:
            raise Http404(f"There is no row {object_id}.")
        context = {
            **self.admin_site.each_context(request),
            "title": f"{self.opts.verbose_name} {row.pk}",
            "subtitle": printable(str(row)[:SHOWN_IN_LIST]),
            "opts": self.opts,
            "facts": [(field.verbose_name, _column(field, SHOWN)(row)) for field in self._shown_fields()],
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/row.html", context)

    def _shown_fields(self, without: Iterable[str] = ()) -> list[Field[Any, Any]]:
        passed_over = set(without)
        return [
            field
            for field in self.opts.concrete_fields
            if field.name not in passed_over and not isinstance(field, BinaryField)
        ]


@cache
def _column(field: Field[Any, Any], length: int) -> Callable[[Model], str]:
    """A column that shows a field's value with nothing in it that could act; a relation as a link to its row."""

    def shown(row: Model) -> str:
        value = getattr(row, field.attname)
        if value is None:
            return "–"
        if isinstance(field, ForeignKey):
            related = field.related_model._meta
            address = reverse(f"admin:{related.app_label}_{related.model_name}_change", args=[value])
            return format_html('<a href="{}">{} {}</a>', address, related.verbose_name, value)
        told = str(value)
        return "–" if not told else printable(told if len(told) <= length else f"{told[:length]}…")

    shown.short_description = field.verbose_name  # type: ignore[attr-defined]
    shown.admin_order_field = None if isinstance(field, TextField) else field.name  # type: ignore[attr-defined]
    shown.__name__ = field.name
    return shown


@admin.register(Root, site=site)
class RootAdmin(ReadOnlyAdmin):
    pass


@admin.register(Session, site=site)
class SessionAdmin(ReadOnlyAdmin):
    bulky = ("state", "fingerprint", "damage", "first_user_message", "fault")
    search_fields = ("relative_path", "title")


@admin.register(Entry, site=site)
class EntryAdmin(ReadOnlyAdmin):
    search_fields = ("entry_id",)
    ordering = ("session", "number")
