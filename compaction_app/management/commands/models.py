import argparse
import os
import sys
from collections.abc import Callable, Mapping
from getpass import getpass
from typing import Any, Final

from django.core.management.base import CommandParser
from django.db import transaction

from compaction_app.models import PlannerModel, Provider
from compaction_app.pages.models import forms
from compaction_app.planning import model_registry
from compaction_app.providers.types import Dialect, ThinkingStyle
from sessions_app.cli import CHECK_FAILED, RedlineCommand, printable
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.terminal import Column

READY: Final = "ready"
COLUMNS: Final = (
    Column("MODEL"),
    Column("HOST", cut="end"),
    Column("WINDOW", right=True),
    Column("OUTPUT", right=True, spare=True),
    Column("THINKING", cut="end", spare=True),
    Column("KEY", spare=True),
    Column("STATE", cut="end", styles={READY: "green"}),
)
KEY_LENGTH: Final = 10_000
"""The maximum number of characters of a key that are read; a longer key is refused."""


class Command(RedlineCommand):
    help = "List, add, test and delete the models that can plan, and their providers."
    needs_database = True
    earlier_words: Mapping[str, str] = {"remove": "delete"}

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="list|add|test|delete")

        def action(name: str, help: str) -> argparse.ArgumentParser:  # noqa: A002  # as argparse calls it
            added = actions.add_parser(name, as_json=self.as_json, help=help, description=help, allow_abbrev=False)
            # Also accepted after the action; the value before it is kept.
            added.add_argument(
                "--json",
                action="store_true",
                dest="as_json",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )
            return added

        action("list", "list providers and models, and why one cannot be used")
        _add_arguments_of_add(action("add", "add a model, and its provider if it is new"))
        action("test", "have a model make one small tool call").add_argument("model", metavar="PROVIDER/MODEL")
        delete = action("delete", "delete a model, or a provider with its models and its key")
        delete.add_argument("model", metavar="PROVIDER[/MODEL]")
        delete.add_argument("--yes", action="store_true", help="delete a provider without asking")

    def run(self, options: dict[str, Any]) -> int | None:
        actions: dict[str, Callable[[dict[str, Any]], int | None]] = {
            "list": self._list,
            "add": self._add,
            "test": self._test,
            "delete": self._delete,
        }
        return actions[options["action"]](options)

    # ---- list ----------------------------------------------------------------------------------------------

    def _list(self, options: dict[str, Any]) -> None:
        del options
        found = model_registry.models_by_provider()
        self.show_json({"providers": [_provider_json(provider, own) for provider, own in found]})
        rows = [_row(model) for _, own in found for model in own]
        if rows:
            self.say_all(self.screen.table(COLUMNS, rows))
        else:
            self.say("There are no models. `redline models add --help` shows how to add one.")
        for provider, own in found:
            if provider.fault or (provider.source == model_registry.ADDED and not own):
                self.say(f"{provider.name}: {printable(provider.fault or 'no models')}")

    # ---- add -----------------------------------------------------------------------------------------------

    def _add(self, options: dict[str, Any]) -> None:
        provider, name = _names(options["model"])
        key = self._key(options)
        levels = [level for level in options["thinking"].split(",") if level]
        form = forms.PlannerModelForm(
            # The base URL is for a new provider.
            {**options, "provider": provider, "name": name, "base_url": "", "thinking_levels": levels}
        )
        if any(one.name == provider for one in model_registry.providers()):
            self._add_to(model_registry.provider_named(provider), form, key, options)
        else:
            self._add_with_provider(provider, form, key, options)
        added = model_registry.model_named(f"{provider}/{name}")
        self.show_json(_model_json(added))
        self.say(f"Added {printable(added.planner)} at {printable(added.host)}.")
        if added.fault:
            self.say(printable(added.fault))

    def _add_to(
        self, known: model_registry.ResolvedProvider, form: forms.PlannerModelForm, key: str, options: dict[str, Any]
    ) -> None:
        """Add a model to an existing provider; a given key becomes the provider's key."""
        if options["base_url"] or options["dialect"]:
            raise BadInput(
                "known_provider",
                f"The provider {known.name} already exists, at {known.base_url or 'no address'}. Nothing was added. "
                "Omit --base-url and --dialect, or choose another name for the provider.",
            )
        with transaction.atomic():
            forms.save_model(form)
            if key and known.source == model_registry.ADDED:
                values = {"dialect": known.dialect, "base_url": known.base_url, "key": key}
                forms.change_provider(forms.ProviderForm(values, instance=forms.added_provider(known.name)))
            elif key:
                forms.change_key(forms.KeyForm(known, {"key": key, "origin": known.origin}))

    def _add_with_provider(
        self, provider: str, form: forms.PlannerModelForm, key: str, options: dict[str, Any]
    ) -> None:
        """Add a provider and its first model: both, or neither."""
        if not options["base_url"]:
            known = ", ".join(one.name for one in model_registry.providers())
            raise BadInput(
                "unknown_provider",
                f"There is no provider {provider}; known: {known}. Nothing was added. Give --base-url to add it.",
            )
        values = {
            "name": provider,
            "dialect": options["dialect"] or Dialect.OPENAI,
            "base_url": options["base_url"],
            "key": key,
        }
        try:
            with transaction.atomic():
                forms.add_provider(forms.ProviderForm(values))
                forms.save_model(form)
        except RedlineError:
            if not any(one.name == provider for one in model_registry.providers()):
                forms.forget_key(provider)
            raise

    def _key(self, options: dict[str, Any]) -> str:
        """The key, by variable or standard input: never an argument, which other users of the machine could read."""
        if options["key"] is not None:
            raise BadInput(
                "key_in_arguments",
                "A key is not accepted as an argument, where others on this machine can read it. Nothing was added. "
                "Use --key-variable NAME or --key-stdin, and replace this key if others use this machine.",
            )
        variable = options["key_variable"]
        if variable is not None:
            if not os.environ.get(variable, "").strip():
                raise BadInput("no_key", f"The variable {variable} is not set or empty. Nothing was added.")
            return os.environ[variable]
        if not options["key_stdin"]:
            return ""
        key = (getpass("Key: ") if self.can_ask else sys.stdin.readline(KEY_LENGTH)).strip()
        if not key:
            raise BadInput("no_key", "Standard input contains no key. Nothing was added.")
        return key

    # ---- test and delete -------------------------------------------------------------------------------------

    def _test(self, options: dict[str, Any]) -> int | None:
        model = model_registry.model_named(options["model"])
        verdict = forms.test_model(model_registry.endpoint_of(model), model)
        self.show_json(
            {
                "model": model.planner,
                "ok": verdict.ok,
                "message": verdict.message,
                "seconds": round(verdict.seconds, 1),
            }
        )
        self.say(printable(verdict.message))
        return None if verdict.ok else CHECK_FAILED

    def _delete(self, options: dict[str, Any]) -> None:
        named = options["model"]
        if "/" in named:
            model = model_registry.model_named(named)
            forms.remove_model(model.pk)
            deleted = [model.planner]
        else:
            deleted = self._delete_provider(model_registry.provider_named(named), is_confirmed=options["yes"])
        self.show_json({"deleted": deleted, "removed": deleted})
        self.say(f"Deleted {', '.join(map(printable, deleted))}. Its plans are kept.")

    def _delete_provider(self, provider: model_registry.ResolvedProvider, *, is_confirmed: bool) -> list[str]:
        own = [model.planner for model in model_registry.models() if model.provider.name == provider.name]
        what = f"{provider.name}, {plural(len(own), 'model')} and any key stored for it"
        if not is_confirmed and not (self.can_ask and self.ask(f"Delete {what}?")):
            raise ConfirmationNeeded(
                "remove_provider",
                f"Deleting {what} needs a confirmation. Nothing was deleted. Use --yes.",
                "--yes",
            )
        forms.remove_provider(provider.name)
        return [provider.name, *own]


def _add_arguments_of_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="PROVIDER/MODEL", help="the model, by its provider's name for it")
    parser.add_argument("--window", required=True, metavar="TOKENS", help="its context window")
    parser.add_argument("--output-limit", default="8192", metavar="TOKENS", help="the most tokens of one answer (8192)")
    parser.add_argument("--base-url", default="", metavar="URL", help="the address of a new provider")
    parser.add_argument(
        "--dialect",
        default="",
        choices=[name for name, _ in Provider.DIALECTS],
        help="the API dialect of a new provider (openai)",
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--key-variable", metavar="NAME", help="store the key in this environment variable")
    key.add_argument("--key-stdin", action="store_true", help="store the key in the first line of standard input")
    key.add_argument("--key", nargs="?", const="", help=argparse.SUPPRESS)
    parser.add_argument(
        "--thinking", default="", metavar="LEVELS", help=f"the levels it supports, of {','.join(model_registry.LEVELS)}"
    )
    parser.add_argument(
        "--thinking-style",
        default=ThinkingStyle.BUDGET,
        choices=[name for name, _ in PlannerModel.THINKING],
        help="how a level is sent to an Anthropic model",
    )
    for name in ("price-in", "price-out", "price-cache-read", "price-cache-write"):
        parser.add_argument(f"--{name}", default="", metavar="USD", help="the price of a million tokens")


def _names(planner: str) -> tuple[str, str]:
    provider, slash, name = planner.partition("/")
    if not (slash and provider and name):
        raise BadInput("bad_model", f"{planner} is not of the form PROVIDER/MODEL. Nothing was done.")
    return provider, name


def _provider_json(
    provider: model_registry.ResolvedProvider, own: list[model_registry.ResolvedModel]
) -> dict[str, Any]:
    return {
        "name": provider.name,
        "dialect": provider.dialect,
        "baseUrl": provider.base_url or None,
        "source": provider.source,
        "keySource": provider.key_source or None,
        "keyHint": provider.key_hint or None,
        "plansUnasked": provider.agreed,
        "fault": provider.fault or None,
        "models": [_model_json(model) for model in own],
    }


def _model_json(model: model_registry.ResolvedModel) -> dict[str, Any]:
    return {
        "model": model.planner,
        "baseUrl": model.base_url,
        "window": model.window,
        "outputLimit": model.output_limit,
        "thinking": list(model.thinking_levels),
        "prices": {
            "input": model.prices.input,
            "output": model.prices.output,
            "cacheRead": model.prices.cache_read,
            "cacheWrite": model.prices.cache_write,
        },
        "fault": model.fault or None,
    }


def _row(model: model_registry.ResolvedModel) -> list[str]:
    return [
        printable(model.planner),
        printable(model.host),
        f"{model.window:,}",
        f"{model.output_limit:,}",
        ",".join(model.thinking_levels) or "-",
        model.provider.key_hint or "-",
        printable(model.fault) or READY,
    ]
