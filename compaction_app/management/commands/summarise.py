from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandParser

from compaction_app.changes.entries import AppendPlan, append_entries, plan_append
from compaction_app.core.mentions import MEASURES
from compaction_app.core.summary_loss import JudgedSubjects
from compaction_app.management.change_command import ChangeCommand, RequestScreen, flags_of
from compaction_app.planning.model_registry import endpoint_of, model_named, model_of_session
from compaction_app.planning.model_request import Summarizer
from compaction_app.providers.types import UsageTotals
from compaction_app.summaries import drafts
from compaction_app.summaries.summary_task import SummaryTask, branch_task, compaction_task
from sessions_app.cli import SESSION_HELP, printable, shell_path, shell_quoted, text_lines
from sessions_app.disk.files import real_path, reported
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.text import plural

LONGEST_TEXT: Final = 1_000_000
"""The maximum length of a summary, in bytes."""


class Command(ChangeCommand):
    help = (
        "Have a model draft a summary, or append one that you have read. It is a summary of the beginning of a context "
        "or of the branch that a move leaves. A model writes it, and it replaces what was said: it is not verbatim, "
        "as a compaction is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type="session", metavar="SESSION", help=SESSION_HELP)
        parser.add_argument(
            "--leave-for",
            metavar="ID",
            default="",
            help="summarise the branch that a move to this entry leaves; the move is made when the summary is appended",
        )
        parser.add_argument("--focus", metavar="WORDS", default="", help="what the summary should emphasise")
        parser.add_argument("--model", metavar="PROVIDER/NAME", default="", help="the model (default: the session's)")
        parser.add_argument("--save", type=Path, metavar="FILE", help="write the draft to this new file, to be edited")
        parser.add_argument("--text", type=Path, metavar="FILE", help="append the summary in this file")
        self.add_confirmations(parser, "append without asking")

    def run(self, options: dict[str, Any]) -> None:
        path = real_path(options["path"])
        session = index_file(path)
        if options["text"] is not None:
            self._append(path, session, options)
        else:
            self._draft(path, session, options)

    # ---- a draft ---------------------------------------------------------------------------------------

    def _draft(self, path: Path, session: Session, options: dict[str, Any]) -> None:
        _require_new(options["save"])
        model = model_named(options["model"]) if options["model"] else model_of_session(session)
        window = model.window if model is not None else None
        asked = drafts.ask_hooks_about(_task(path, options, window))
        task, supplied = asked.task, asked.supplied
        kept = drafts.keep_supplied(session, _wanted(options), task.present.leaf_id, asked)
        self.say_all(f"Hook: {printable(message)}" for message in asked.messages)
        self._show(task)
        screen = RequestScreen(self)
        if supplied is not None:
            draft, is_cut = supplied.text, False
        else:
            if model is None:
                raise BadInput(
                    "no_model",
                    f"No model is configured for {path}. Nothing was sent. Choose one with --model, or add one on the "
                    "Models page; `redline models` lists them.",
                )
            summarizer = Summarizer(model, endpoint_of(model), screen, UsageTotals(model.host))
            written = summarizer.write(task.parts)
            draft, is_cut = task.text_of(written.texts), written.is_cut
        self.progress.clear()
        self.say()
        self.say_all(text_lines(task.complete(draft)))
        self.say()
        if is_cut:
            self.say("The model's output limit cut this draft off: check its end.", "yellow")
        self.say_all(_mentions(task.judge(draft)))
        self.say_all(screen.totals())
        if options["save"] is not None:
            self._save(options["save"], draft)
        self.say("This is a draft. Nothing was appended.")
        if kept is not None:
            self.say(f"It is stored as draft {kept.pk}, with what the hook supplied beside its text.")
        self.say(self._how_to_append(options), "yellow")
        judged = task.judge(draft)
        mentions = {
            name: {"still": len(getattr(judged.still, name)), "of": len(getattr(judged.subjects, name))}
            for name in MEASURES
        }
        document = {"draft": draft, "cutOff": is_cut, "mentions": mentions, "usage": screen.usage}
        number = kept.pk if kept is not None else None
        self.show_json({**_task_document(task), **document, "draftNumber": number})

    def _save(self, path: Path, draft: str) -> None:
        """Write the draft to a new file. If that fails, the error has the whole text, which was paid for."""
        try:
            with reported(path, "The draft was not saved."), path.open("x", encoding="utf-8") as file:
                file.write(f"{draft}\n")
        except RedlineError as failure:
            if self.as_json:
                failure.message += f" It is: {draft}"
            raise

    def _show(self, task: SummaryTask) -> None:
        what = "would be replaced" if task.is_compaction else "would be left"
        self.say(f"{task.counted} {what}, about {plural(task.estimate, 'token')} as the agent estimates.")
        if task.left_out:
            self.say(
                f"The oldest {plural(task.left_out, 'message')} of them do not fit, and will not be shown to the model."
            )
        if task.is_compaction:
            self.say(f"Everything from {printable(task.first_kept_id)} on is kept, word for word.")
        if task.replacement.images:
            images = plural(task.replacement.images, "image")
            self.say(f"{images} among them will be lost to the model: a summary is text.", "yellow")
        for words, files in (("read", task.files.read), ("modified", task.files.modified)):
            self.say_all(f"  {words}: {printable(name)}" for name in files)

    # ---- a summary from a file -------------------------------------------------------------------------

    def _append(self, path: Path, session: Session, options: dict[str, Any]) -> None:
        text = _text_in(options["text"])
        task = _task(path, options, None)
        draft = drafts.kept_draft(session, _wanted(options), task.present.leaf_id)
        supplied = drafts.supplied_by(draft) if draft is not None else None
        asked = drafts.ask_hooks_about(drafts.keeping(task, supplied))
        if supplied is None:
            task, supplied = asked.task, asked.supplied
        else:
            task = drafts.keeping(task, supplied)
        make, now = task.change(text), datetime.now(UTC)
        plan = plan_append(path, make, now)
        if supplied is not None:
            self.say(f"The files, and what is kept, are as supplied by {printable(supplied.why)}.")
        self._show(task)
        self.say_all(_mentions(task.judge(text)))
        back = ["redline", "move", shell_path(options["path"]), f"--to={task.present.leaf_id}"]
        self.say("One line is appended, after a backup. To take it back, as long as nothing was said since:")
        self.say(f"  {' '.join(map(shell_quoted, back))}")
        confirmations = self.confirmed(plan, "Append this summary", options, self._how_to_append(options, plan))
        if draft is not None:
            drafts.save_text(draft, text)
        number = draft.pk if draft is not None else None
        appended = append_entries(path, make, confirmations, now, shown=plan.digest(), draft=number, label=asked.label)
        self.say(
            f"Appended {printable(appended.made.entry_id)} to {printable(path)}. "
            f"The backup is {printable(appended.backup_path)}."
        )
        self.say("An agent that has the session open must reload it.")
        drafts.tell_hooks(task, appended.made.lines, text, appended.backup_path)
        made = {"entry": appended.made.entry_id, "backup": str(appended.backup_path)}
        self.show_json({**_task_document(task), **made})

    def _how_to_append(self, options: dict[str, Any], plan: AppendPlan | None = None) -> str:
        """The command line that appends a summary, with all confirmations that it needs now."""
        leave = [f"--leave-for={options['leave_for']}"] if options["leave_for"] else []
        text = options["text"] or options["save"] or Path("FILE")
        own = [*leave, f"--text={text}", *(flags_of(plan.needs) if plan is not None else [])]
        return f"To append it as you have edited it: {self.command_line(shell_path(options['path']), *own)}"


def _wanted(options: dict[str, Any]) -> drafts.WantedSummary:
    return drafts.WantedSummary(options["leave_for"], focus=options["focus"])


def _task(path: Path, options: dict[str, Any], window: int | None) -> SummaryTask:
    if options["leave_for"]:
        return branch_task(path, options["leave_for"], options["focus"], window)
    return compaction_task(path, options["focus"])


def _text_in(path: Path) -> str:
    with reported(path, "Nothing was appended."), path.open("rb") as file:
        content = file.read(LONGEST_TEXT + 1)
    if len(content) > LONGEST_TEXT:
        raise BadInput("text_too_long", f"{path} has more than {LONGEST_TEXT:,} bytes. Nothing was appended.")
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise BadInput("not_utf8", f"{path} is not UTF-8: {fault}. Nothing was appended.") from fault


def _require_new(path: Path | None) -> None:
    """Raise BadInput before anything is sent: a draft that cannot be saved would be paid for and lost."""
    if path is None:
        return
    with reported(path, "Nothing was sent."):
        is_there, has_directory = path.exists(), path.parent.is_dir()
    if is_there or not has_directory:
        why = "exists already" if is_there else "is in a directory that does not exist"
        raise BadInput("cannot_save", f"{path} {why}. Nothing was sent. Choose another file.")


def _mentions(judged: JudgedSubjects) -> list[str]:
    """The share of the replaced subjects that a draft still mentions."""
    numbers = (
        f"{len(getattr(judged.still, name))} of {len(getattr(judged.subjects, name))} {name}" for name in MEASURES
    )
    return [f"The draft mentions {', '.join(numbers)} of what it replaces."]


def _task_document(task: SummaryTask) -> dict[str, Any]:
    return {
        "kind": "compaction" if task.is_compaction else "branch",
        "replaced": [entry.id for entry in task.replaced],
        "estimate": task.estimate,
        "leftOut": task.left_out,
        "firstKept": task.first_kept_id or None,
        "readFiles": list(task.files.read),
        "modifiedFiles": list(task.files.modified),
        "images": task.replacement.images,
        "fromHook": task.from_hook,
    }
