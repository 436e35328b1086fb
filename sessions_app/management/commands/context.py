from typing import Any, Final

from django.core.management.base import CommandParser

from sessions_app.agents.registry import READERS_HELP, fitting_reader
from sessions_app.cli import LEAF_HELP, NEWEST, NEWEST_HELP, RedlineCommand, printable, text_lines
from sessions_app.document.document import Document
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.context import ActiveContext, ContextSize, Message, significant
from sessions_app.sessionlog.entries import NO_TEXTS
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.storage.session_certificate import reworded_entries, sent_messages
from sessions_app.storage.session_loader import tally_of
from sessions_app.terminal import Column

BEGINNING: Final = 120
"""The length of the beginning of a text, in characters."""
COLUMNS: Final = (
    Column("ENTRY"),
    Column("ROLE", style="cyan"),
    Column("TOKENS", right=True),
    Column("BLOCKS", styles={"recorded, not sent": "yellow", "replaced": "yellow", "as text": "yellow"}),
    Column("TEXT", cut="end"),
)


class Command(RedlineCommand):
    help = "Show what the model sees of a session's branch."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", type="session", default=NEWEST, metavar="SESSION", help=NEWEST_HELP)
        parser.add_argument("--branch", dest="leaf", metavar="ID", help=LEAF_HELP)
        parser.add_argument("--open-as", dest="reader", default="", metavar="NAME", help=READERS_HELP)
        parser.add_argument(
            "--messages",
            action="store_true",
            help="with --json: also the messages with role and content, as the agent sends them, and in `reworded` "
            "the ids of entries around which it puts words of its own that are not shown",
        )
        parser.add_argument("--entry", metavar="ID", help="show the whole text of this entry")

    def run(self, options: dict[str, Any]) -> None:
        if options["messages"] and not self.as_json:
            raise BadInput("needs_json", "--messages is for --json. Nothing was read. Give both, or neither.")
        document = self.open_document(options["path"], options["reader"])
        leaf_id = options["leaf"] or document.leaf_id
        known, reading = document.session, document.reading
        branch, context = document.branch(leaf_id), document.context(leaf_id)
        size = tally_of(
            context,
            branch,
            reading.reader.rebuild,
            known.inherited_measure if known is not None else None,
            lambda entry: document.texts([entry])[entry.id],
        ).size
        if options["entry"] is not None:
            self._show_entry(document, context, options["entry"], size)
            return
        parts, outside = size.contents([message.tokens for message in context.messages])
        fitting = fitting_reader(reading.agent, branch, reading.reader)
        shown: dict[str, Any] = {
            "leafId": leaf_id,
            "openedAs": reading.reader.name,
            "kept": [message_json(message) for message in context.messages],
            "tokens": size.tokens,
            "basis": size.basis,
            "measuredBy": "index" if known is not None else "file",
            "fitsOpenedAs": fitting or None,
        }
        if context.refused is not None:
            shown["refused"] = {"entryId": context.refused.entry.id, "reason": context.refused.reason}
        if options["messages"]:
            shown["messages"] = list(sent_messages(document, reading.agent, context))
            shown["reworded"] = reworded_entries(document, reading.agent, context)
        self.show_json(with_earlier_names(shown, reader="openedAs", fittingReader="fitsOpenedAs"))
        if not self.as_json:
            texts = document.texts([message.source for message in context.messages])
            self.say(
                f"Branch of {printable(leaf_id)}, opened as {reading.reader.name} because {printable(reading.reason)}."
            )
            rows = [
                [
                    printable(message.entry.id),
                    printable(message.entry.tool_name or message.role),
                    f"{significant(tokens):,}",
                    _kept_blocks(message),
                    one_line(message.text(texts[message.source.id]), BEGINNING),
                ]
                for message, tokens in zip(context.messages, parts, strict=True)
            ]
            self.say_all(self.screen.table(COLUMNS, rows))
            measured = "as in the index" if known is not None else "measured from the file, which is not indexed"
            rest = f"; about {significant(outside):,} in no message: instructions and tools" if outside else ""
            self.say(f"{plural(len(context.messages), 'message')}, {size}, {measured}{rest}.")
            if fitting:
                self.say(
                    f"The provider reported far fewer tokens than this context has when it is opened as "
                    f"{reading.reader.name}. Opened as {fitting}, it would fit: use --open-as {fitting}.",
                    "yellow",
                )
            if context.refused is not None:
                self.say(printable(context.refused.reason), "yellow")

    def _show_entry(self, document: Document, context: ActiveContext, entry_id: str, size: ContextSize) -> None:
        """Show the whole text of an entry, whether the model sees it or not. Raises BadInput `unknown_entry`."""
        entry = document.tree.entry(entry_id)
        message = next((one for one in context.messages if one.entry is entry), None)
        texts = document.texts([entry]).get(entry.id, NO_TEXTS)
        text = texts.joined(entry.blocks)
        what, tokens = entry.tool_name or entry.role or entry.type, significant(size.of(entry.tokens))
        self.show_json(
            {
                "entryId": entry.id,
                "role": what,
                "tokens": size.of(entry.tokens),
                "inContext": message is not None,
                "text": text,
            }
        )
        if message is None:
            seen = "the model does not see it"
        elif message.edit is not None:
            seen = f"the model sees the content of {printable(message.edit.id)} instead"
        elif message.blocks != entry.blocks:
            seen = f"the model sees {_kept_blocks(message)} blocks"
        else:
            seen = "the model sees it"
        self.say(f"{printable(entry.id)} {printable(what)}, about {plural(tokens, 'token')}; {seen}.", "bold")
        self.say_all(text_lines(text))


def message_json(message: Message) -> dict[str, Any]:
    """A message in the format of the conformance vectors."""
    kept: dict[str, Any] = {"entryId": message.entry.id}
    if message.blocks is not None:
        kept["blocks"] = [block.index for block in message.blocks]
    return kept


def _kept_blocks(message: Message) -> str:
    if not message.sent:
        return "recorded, not sent"
    if message.edit is not None:
        return "replaced"
    if message.as_text:
        return "as text"
    if message.blocks is None or message.entry.blocks is None:
        return ""
    if len(message.blocks) == len(message.entry.blocks):
        return str(len(message.blocks))
    return f"{len(message.blocks)} of {len(message.entry.blocks)}"
