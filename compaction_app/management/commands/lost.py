from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandParser

from compaction_app.core.gates import Restraints
from compaction_app.core.mentions import MEASURES, Subjects
from compaction_app.core.summary_loss import SummaryLoss, loss_of, replacement_by, summaries_on
from sessions_app.agents.registry import READERS_HELP
from sessions_app.cli import LEAF_HELP, SESSION_HELP, RedlineCommand, printable
from sessions_app.document.document import Document
from sessions_app.earlier_names import with_earlier_names
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import one_line, plural
from sessions_app.terminal import Column

COLUMNS: Final = (
    Column("SUMMARY"),
    Column("WHEN"),
    Column("KEPT BY", style="cyan"),
    Column("TOKENS", right=True),
    *(Column(measure.upper(), right=True) for measure in MEASURES),
)
WIDTH: Final = 110
"""The number of characters of a lost subject that are shown."""


class Command(RedlineCommand):
    help = (
        "Show what the summaries of a branch lost. Of the paths, frequent names, error texts and messages of yours "
        "that each replaced, those are counted that the summary still mentions and that a verbatim plan of its size "
        "would have kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument("--entry", default="", metavar="ID", help="one summary, with everything that it lost")
        parser.add_argument("--branch", dest="leaf", metavar="ID", help=LEAF_HELP)
        parser.add_argument("--open-as", dest="reader", default="", metavar="NAME", help=READERS_HELP)

    def run(self, options: dict[str, Any]) -> None:
        document = self.open_document(options["path"], options["reader"])
        branch, reading = document.branch(options["leaf"] or ""), document.reading
        summaries = summaries_on(branch, reading.reader)
        if options["entry"]:
            summaries = [summary for summary in summaries if summary.id == options["entry"]]
            if not summaries:
                raise BadInput(
                    "not_a_summary",
                    f"Entry {options['entry']} is not a summary that replaced something on this branch. "
                    "Without --entry, all summaries are listed.",
                )
        losses = [loss for summary in summaries if (loss := _loss(document, branch, summary.id)) is not None]
        found = {"openedAs": reading.reader.name, "summaries": [_loss_json(loss) for loss in losses]}
        self.show_json(with_earlier_names(found, reader="openedAs"))
        if losses:
            self.say_all(self.screen.table(COLUMNS, [row for loss in losses for row in _rows(loss)]))
        if options["entry"]:
            self.say_all(line for loss in losses for line in _lost_lines(loss))
        else:
            self.say(f"{plural(len(losses), 'summary')} on this branch.")
        if losses:
            self.say("Tokens are the agent's own estimate: characters / 4.")


def _loss(document: Document, branch: list[Entry], entry_id: str) -> SummaryLoss | None:
    reading = document.reading
    replacement = replacement_by(document.tree, branch, entry_id, reading.reader)
    if replacement is None:
        return None
    return loss_of(
        replacement,
        document.branch(replacement.before_id),
        document.texts(replacement.sources),
        reading.rules(),
        Restraints(frozenset(), settings.REDLINE.thinking_guard),
        document.log.cwd,
    )


def _rows(loss: SummaryLoss) -> Iterator[list[str]]:
    replacement = loss.replacement
    entry = replacement.summary.entry
    first = [printable(entry.id), printable(entry.timestamp)]
    yield [*first, "summary", str(replacement.tokens_after), *_held(loss, loss.still)]
    yield ["", "", "and what is kept beside it", "", *_held(loss, loss.in_context)]
    if loss.plan is not None:
        yield ["", "", "a verbatim plan", str(loss.plan.tokens_after), *_held(loss, loss.plan.still)]


def _held(loss: SummaryLoss, held: Subjects) -> list[str]:
    numbers = ((len(getattr(held, name)), len(getattr(loss.subjects, name))) for name in MEASURES)
    return [f"{still} of {total}" for still, total in numbers]


def _lost_lines(loss: SummaryLoss) -> Iterator[str]:
    for measure in MEASURES:
        subjects = getattr(loss.lost, measure)
        yield ""
        yield f"{plural(len(subjects), measure.removesuffix('s'))} no longer mentioned:"
        for subject in subjects:
            yield f"  {one_line(subject.words, WIDTH)}  ({subject.uses}, {printable(subject.entry_id)})"


def _loss_json(loss: SummaryLoss) -> dict[str, Any]:
    replacement, plan = loss.replacement, loss.plan
    document = {
        "entryId": replacement.summary.entry.id,
        "timestamp": replacement.summary.entry.timestamp,
        "beforeId": replacement.before_id,
        "entries": replacement.entries,
        "tokensBefore": replacement.tokens_before,
        "tokensAfter": replacement.tokens_after,
        "isEncrypted": loss.is_encrypted,
        "total": _counts(loss.subjects),
        "summary": _counts(loss.still),
        "withWhatIsKept": _counts(loss.in_context),
        "verbatimPlan": ({"tokensAfter": plan.tokens_after, **_counts(plan.still)} if plan is not None else None),
        "lost": {
            measure: [
                {"text": subject.words, "entryId": subject.entry_id, "uses": subject.uses}
                for subject in getattr(loss.lost, measure)
            ]
            for measure in MEASURES
        },
    }
    return with_earlier_names(document, withWhatStayed="withWhatIsKept")


def _counts(subjects: Subjects) -> dict[str, int]:
    return {measure: len(getattr(subjects, measure)) for measure in MEASURES}
