"""Every page: it fits its window, it is accessible, and it reports no error.

REDLINE_SHOTS=shots pytest tests/browser/test_shots.py      stores a screenshot of each page as a PNG file

The pages are checked in parts, which workers share. The states of a part are made once, in a place of its own.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests import html
from tests.browser.agent_sessions import (
    AgentHome,
    claude_session,
    codex_thread,
    compacted_claude_session,
    compacted_codex_thread,
    damaged,
    opencode_session,
    place_subagent,
    register_as_open,
    summarised_claude_session,
)
from tests.browser.conftest import A_KEY, idle_place
from tests.browser.page_checks import IN_EVERY_VIEW, have_no_faults
from tests.browser.rendered_session import rendered_session
from tests.browser.scenarios import (
    approve_everything,
    damaged_session,
    decide,
    finished_run,
    forked_session,
    long_session,
    run_number,
    start_run,
    title,
    titled_session,
    undecided_keys,
    working,
)
from tests.factories import chain, result, session_bytes, turns_of_work, user
from tests.files import place
from tests.html import text_of
from tests.run_factories import (
    HOST,
    PREPARED,
    RunFactory,
    add_plan,
    add_turn,
    answered_event,
    asked_event,
    streamed_event,
)
from tests.server import Server
from tests.wait import WAIT_SECONDS

ACME: Final = "https://gateway.example:8443/api"
NOBODY: Final = "http://127.0.0.1:1/v1"
LONG_MODEL: Final = "hf.co/someone/Some-Coder-480B-A35B-Instruct-1M-GGUF:UD-Q4_K_XL-and-more-than-that"
AGENTS: Final = {"claude": "boundary", "codex": "compacted", "opencode": "delete"}
"""Agents, and the writer of each by which a session is compacted here."""
WRITTEN: Final = AGENTS if IN_EVERY_VIEW else ("claude",)
"""The agents whose commit and what follows it are shown: the pages are the same, the words differ."""
ALIKE: Final = {
    *(f"{page}-codex" for page in ("commit", "doctor", "lost", "review", "session-hindsight", "timeline", "tree")),
    *(f"{page}-opencode" for page in ("timeline", "tree")),
    *(f"{page}-archived" for page in ("session", "timeline")),
}
"""Pages that are the same for another agent, with other words."""
REFUSED: Final = r"the server responded with a status of (400|403|404|409)"
FAILED: Final = "UPDATE compaction_app_summarydraft SET state = 'failed', failure = ?, generated = ? WHERE id = ?"
APPENDED: Final = "UPDATE compaction_app_summarydraft SET state = 'appended', appended_id = 'e9' WHERE id = ?"
SUMMARY: Final = "## Goal\nFind why the cache is slow.\n\n## Next Steps\nRead src/cache_0.py again."
MEASURE: Final = (
    "import sys, django; django.setup(); "
    "from lab_app.lab.experiments import measure_experiment; measure_experiment(int(sys.argv[1]), 'shots')"
)
"""A worker of one experiment."""

Pages = dict[str, str]


class Stage:
    """The states of one part of the pages, in a place of a server that leaves runs to workers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.agents = AgentHome(Path(server.environment["HOME"]))

    def put(self, *names: str, **shape: int) -> None:
        for name in names:
            self.server.put(f"{name}.jsonl", titled_session(name, **shape))

    def put_bytes(self, name: str, content: bytes) -> None:
        place(self.server.root / f"{name}.jsonl", content)

    def at(self, name: str) -> str:
        """The address of a session, which may also be in the home of an agent."""
        return self.server.session(title(name), below=self.server.data.parent)

    def approved(self, name: str) -> str:
        """A run whose proposals are all approved."""
        run = finished_run(self.server, self.at(name))
        approve_everything(self.server, run)
        return run

    def first(self, path: str, beginning: str) -> str:
        """The first address on a page that begins so."""
        addresses = (address for _, address in html.links(self.server.get(path)))
        return next(address for address in addresses if address.startswith(beginning))

    def add_model(self) -> None:
        """The provider acme with the model claude-x, unless they are there."""
        if "claude-x" in self.server.get("/settings/models"):
            return
        self.server.post(
            "/settings/providers/add", "/settings/providers/add", name="acme", dialect="anthropic", base_url=ACME
        )
        limits = {"window": "200000", "output_limit": "8000", "thinking_levels": "high", "thinking_style": "budget"}
        self.server.post("/settings/models/add", "/settings/models/add", provider="acme", name="claude-x", **limits)

    def event_factory(self, page: str, planner: str) -> RunFactory:
        """Writes the events of a run, as its worker."""
        run = run_number(page)
        self.server.keep_alive(run)
        return RunFactory(self.server.data / "redline.sqlite3", run, planner)

    def change_draft(self, draft: str, statement: str, *values: str) -> None:
        """Change the row of a draft, as a worker does."""
        database, number = self.server.data / "redline.sqlite3", int(draft.rsplit("/", 1)[1])
        with closing(sqlite3.connect(database, timeout=WAIT_SECONDS)) as connection, connection:
            connection.execute(statement, (*values, number))


# ---- the parts -------------------------------------------------------------------------------------------


def sessions(stage: Stage) -> Pages:
    """The list, sessions in each state, trees, texts, search and settings."""
    stage.put_bytes("real", long_session())
    stage.put_bytes("forked", forked_session())
    stage.put_bytes("rendered", rendered_session())
    stage.put_bytes("broken", session_bytes(chain(user(title("broken")), result("c1"), user("Go on."))))
    stage.put_bytes("damaged", damaged_session("damaged"))
    stage.put_bytes("empty", session_bytes(titled_session("empty")[:1]))
    stage.put("gone")
    server = stage.server
    real, forked, rendered = (server.session("real.jsonl"), stage.at("forked"), server.session("rendered.jsonl"))
    empty, gone = server.session("empty.jsonl"), stage.at("gone")
    (server.root / "gone.jsonl").unlink()
    server.wait_for(lambda: "searched" in text_of(server.get("/search?q=fix")))
    return {
        "list": "/",
        "list-filtered-to-nothing": "/?q=nothing+of+this+name",
        "session-sees": f"{real}?view=sees",
        "session-all": f"{real}?view=all",
        "session-removed-nothing": f"{real}?view=removed",
        "session-broken": stage.at("broken"),
        "session-damaged": stage.at("damaged"),
        "doctor": f"{stage.at('damaged')}/doctor",
        "doctor-healthy": f"{forked}/doctor",
        "compaction-settings": f"{real}/settings",
        "session-forked": f"{forked}?view=all",
        "session-rendered": f"{rendered}?view=all",
        "text-rendered": f"{rendered}/entries/e2/text?block=1",
        "text-of-arguments": f"{rendered}/entries/e8/text?block=0",
        "text-as-recorded": f"{rendered}/entries/e7/text?form=recorded",
        "timeline": f"{real}/timeline",
        "tree": f"{forked}/tree",
        "tree-selected": f"{forked}/tree?at=e4",
        "tree-found": f"{forked}/tree?q=way",
        "tree-real": f"{real}/tree",
        "tree-again": f"{forked}/tree?again=e5",
        "move": f"{forked}/tree/move?entry=e4",
        "move-before": f"{forked}/tree/move?entry=e5",
        "label": f"{forked}/tree/label?entry=e4",
        "fork-from": f"{forked}/tree/fork?entry=e4",
        "compare-branches": f"{forked}/tree/compare?a=e4",
        "compare-branch-with-itself": f"{forked}/tree/compare",
        "entry": f"{forked}/entries/e3",
        "text": f"{forked}/entries/e3/text",
        "text-block": f"{forked}/entries/e2/text?block=1",
        "compact": f"{real}/compact",
        "backups-empty": f"{forked}/backups",
        "import": "/import",
        "search": "/search?q=fix",
        "search-narrowed": "/search?q=fix+is:seen&in=result&in=call",
        "search-phrase": "/search?q=%22the+file%22&sort=newest",
        "search-nothing": "/search?q=needle-of-this-name",
        "search-empty": "/search",
        "settings": "/settings",
        "settings-windows": "/settings/windows",
        "settings-browser": "/settings/browser",
        "settings-advanced": "/settings/advanced",
        "agents": "/settings/agents",
        "connect": "/settings/agents/claude-code/connect",
        "connect-extension": "/settings/agents/pi/connect",
        "remove-connection-of-none": "/settings/agents/codex/remove",
        "summarise-nothing": f"{real}/summarise",
        "session-gone": gone,
        "session-empty": empty,
        "tree-empty": f"{empty}/tree",
        "nothing-here": "/nothing/here",
    }


def runs(stage: Stage) -> Pages:
    """Runs of each planner, one for each way to end; providers of each kind, and models."""
    model_runs = ("model-streams", "model-failed", "model-fifty")
    stage.put("ended", "below", "queued", "interrupted", "running", *model_runs)
    stage.put_bytes("short", session_bytes(chain(user(title("short")))))
    server = stage.server
    stage.add_model()
    pages = {}
    with working(server):
        pages["run-ended"] = finished_run(server, stage.at("ended"))
        pages["run-below"] = finished_run(server, stage.at("below"), keep="1")
        pages["run-failed"] = finished_run(server, stage.at("short"))
    pages["review-failed"] = pages["run-failed"]
    for name in ("interrupted", "running"):
        pages[f"run-{name}"] = page = start_run(server, stage.at(name))
        factory = stage.event_factory(page, "embedded")
        factory.add_all([PREPARED])
        factory.add_call(1, 0, "context_search_transcript", {"pattern": "line_1"}, sentence="4 matches.")
        factory.add_call(1, 1, "context_delete", {"deletions": []}, sentence="9 deleted.", gain=41_108)
        if name == "interrupted":
            factory.set_state("interrupted")
    for name in model_runs:
        pages[f"run-{name}"] = page = start_run(server, stage.at(name))
        factory = stage.event_factory(page, "anthropic/claude-sonnet-4-5")
        add_plan(factory, turns=3)
        if name == "model-streams":
            add_turn(factory, 4, answer=False)
            pages["words"] = f"{page}/requests/2"
        elif name == "model-failed":
            add_turn(factory, 4, answer=False)
            factory.end("failed", f"{HOST}: the credit is used up.", f"{HOST}: the credit is used up.")
        else:
            calls = [["call", index, "context_search_transcript"] for index in range(50)]
            factory.add_all([asked_event(4), streamed_event(4, *calls), answered_event(4, calls=50, estimated=True)])
            factory.add_call(4, 0, "context_search_transcript", {"pattern": "a"}, sentence="No match.")
    queued = start_run(server, stage.at("queued"))
    failed = run_number(pages["run-model-failed"])
    return {
        **{name: f"{page}/log" if name.startswith("run-") else page for name, page in pages.items()},
        "run-queued": f"{queued}/log",
        "compact-failed": f"{stage.at('model-failed')}/compact?plan={failed}",
        "compact-planning": f"{stage.at('model-streams')}/compact",
        "review-at-work": queued,
        "compact-in-flight": f"{stage.at('queued')}/compact",
        "compact-model": f"{stage.at('ended')}/compact?planner=acme/claude-x",
        "inbox": "/inbox",
        "inbox-running": "/inbox?show=running",
        "inbox-done": "/inbox?show=done",
        **_models(stage),
    }


def _models(stage: Stage) -> Pages:
    """Models: one with prices, one with a long name and an address of its own."""
    server = stage.server
    acme, ours = {"provider": "acme"}, {"provider": "ours"}
    limits = {"window": "262144", "output_limit": "8192", "thinking_style": "budget"}
    preset = "/settings/providers/add?for=llama-cpp"
    server.post(preset, "/settings/providers/add", name="ours", dialect="openai", base_url=NOBODY, key=A_KEY)
    own = {"base_url": "http://127.0.0.1:2/v1", "price_in": "0", "price_out": "0"}
    server.post("/settings/models/add", "/settings/models/add", name=LONG_MODEL, **ours, **own, **limits)
    prices = {"price_in": "3", "price_out": "15", "price_cache_read": "0.3", "price_cache_write": "3.75"}
    server.post("/settings/models/add", "/settings/models/add", name="claude-y", **acme, **prices, **limits)
    server.post("/settings/models", "/settings/providers/acme/agreement", origin="https://gateway.example:8443")
    moved = {"name": "moved", "dialect": "openai"}
    server.post("/settings/providers/add", "/settings/providers/add", **moved, base_url=NOBODY, key=A_KEY)
    server.post("/settings/models", "/settings/providers/moved/agreement")
    server.post("/settings/providers/moved", "/settings/providers/moved", **moved, base_url=ACME)
    edit = html.elements(server.get("/settings/models"), 'a[href^="/settings/models/"][href$="/remove"]')[0]
    model = str(edit.attributes["href"]).removesuffix("/remove")
    return {
        "models": "/settings/models",
        "model-add": "/settings/models/add?provider=anthropic&name=claude-z",
        "model-edit": model,
        "model-remove": f"{model}/remove",
        "provider-add": "/settings/providers/add",
        "provider-preset": preset,
        "provider-edit": "/settings/providers/ours",
        "provider-key": "/settings/providers/openai",
        "provider-remove": "/settings/providers/ours/remove",
    }


def reviews(stage: Stage) -> Pages:
    """Reviews, what leads to a commit, and what a commit leads to."""
    stage.put_bytes("real", long_session())
    stage.put("live", "changed", "written")
    server = stage.server
    real = server.session("real.jsonl")
    with working(server):
        run = finished_run(server, real, keep="60")
        live = finished_run(server, stage.at("live"), keep="10")
        changed, written = stage.approved("changed"), stage.approved("written")
    keys = undecided_keys(server, run)
    for kind, key in zip(("approve", "reject", "approve", "approve"), keys, strict=False):
        decide(server, run, **{kind: key})
    decide(server, run, add=html.values(server.get(f"{run}/stays?from=0&to=999999999"), "add")[0])
    evidence = ((key, server.get(f"{run}/evidence?of={key}")) for key in undecided_keys(server, run))
    read_again = next(key for key, page in evidence if html.elements(page, ".side-by-side"))
    os.utime(server.root / "live.jsonl")
    decide(server, live, approve=undecided_keys(server, live)[0])
    stage.put("changed", steps=6)
    return {
        "review": run,
        "review-stays": f"{run}/stays?from=0&to=40",
        "evidence": f"{run}/evidence?of={read_again}{'&all=1' * IN_EVERY_VIEW}",
        "evidence-names": f"{run}/evidence?of={keys[-1]}",
        "select": f"{run}/select?by=pattern&what=e",
        "select-refused": f"{run}/select?by=pattern&what=/(/",
        "select-for-plan": f"{real}/select?by=tool&what=read",
        "commit-short": f"{run}/confirm",
        "commit-undecided": f"{run}/confirm?undecided=1",
        "commit-spot-check": f"{run}/confirm{stage.first(f'{run}/confirm', '?look=')}",
        "commit-new-session": f"{run}/confirm?writer=fork",
        "compact-waiting": f"{real}/compact",
        "commit-confirmations": f"{live}/confirm",
        "commit-conflict": f"{changed}/confirm",
        "review-conflict": changed,
        **_written(stage, written),
    }


def _written(stage: Stage, run: str) -> Pages:
    server, address = stage.server, stage.at("written")
    result = server.post(f"{run}/confirm", f"{run}/confirm", yes=["unopened", "names"])
    assert result == f"{run}/result"
    backups = f"{address}/backups"
    restore = html.elements(server.get(backups), 'a[href$="/restore"]')[0]
    backup = str(restore.attributes["href"]).removesuffix("/restore")
    server.wait_for(lambda: "Nothing was deleted" not in server.get(f"{address}?view=removed"))
    return {
        "session-removed": f"{address}?view=removed",
        "session-compacted": f"{address}?view=all",
        "result": result,
        "result-reason": f"{result}{stage.first(result, '?reason=')}",
        "undo": f"{run}/undo",
        "undo-nothing-chosen": f"{run}/undo?choice=shown",
        "undo-all": f"{run}/undo?all=1",
        "undo-group": f"{run}/undo?by=tool&open={html.values(server.get(f'{run}/undo?by=tool'), 'group')[0]}",
        "run-committed": f"{run}/log",
        "review-committed": run,
        "backups": backups,
        "restore": f"{backup}/restore",
        "delete": f"{backup}/delete",
        "audit": "/history",
        "backups-of-all": "/history/backups",
        "backups-under-way": "/history/backups?done=1",
    }


def agents(stage: Stage) -> Pages:
    """Other agents: sessions that a client has compacted or has open, damaged ones, and ones to compact."""
    _place_agents(stage.agents)
    server = stage.server
    claude, codex, opencode = (stage.at(f"{name}-talk") for name in AGENTS)
    summarised = stage.at("claude-summarised")
    with working(server):
        handoff, opened = stage.approved("thread"), stage.approved("claude-open")
        open_runs = {agent: stage.approved(f"{agent}-open") for agent in ("codex", "opencode")}
        written_runs = {agent: stage.approved(f"{agent}-written") for agent in WRITTEN}
    pages = {
        "list-of-an-agent": "/?agent=claude-code",
        "list-of-subagents": "/?show=subagents",
        "session-claude": f"{claude}?view=all",
        "session-subagent": html.link(server.get(claude), title("subagent")),
        "session-codex": f"{codex}?view=all",
        "session-opencode": opencode,
        "session-amp": stage.at("thread"),
        "timeline-claude": f"{claude}/timeline",
        "lost": f"{summarised}/lost",
        "hindsight": "/insights/costs",
        "hindsight-of-none": "/insights/costs?month=2001-01",
        "session-hindsight": f"{summarised}/hindsight",
        "session-hindsight-codex": f"{codex}/hindsight",
        "lost-codex": f"{codex}/lost",
        "lost-nothing": f"{stage.at('claude-written')}/lost",
        "tree-claude": f"{claude}/tree",
        "tree-codex": f"{codex}/tree",
        "tree-opencode": f"{opencode}/tree",
        "timeline-codex": f"{codex}/timeline",
        "session-archived": stage.at("codex-archived"),
        "timeline-archived": f"{stage.at('codex-archived')}/timeline",
        "doctor-claude": f"{stage.at('claude-damaged')}/doctor",
        "doctor-codex": f"{stage.at('codex-damaged')}/doctor",
        "compact-opencode": f"{opencode}/compact",
        "commit-handoff": f"{handoff}/confirm",
        "commit-writer-refused": f"{open_runs['opencode']}/confirm?writer=prune",
        "commit-open-elsewhere": f"{opened}/confirm?writer=boundary",
    }
    for agent, run in open_runs.items():
        pages |= {f"review-{agent}": run, f"commit-{agent}": f"{run}/confirm"}
    for agent, run in written_runs.items():
        commit = f"{run}/confirm?writer={AGENTS[agent]}"
        yes = html.values(server.get(commit), "yes")
        pages |= {
            f"result-{agent}": server.post(commit, f"{run}/confirm", yes=yes),
            f"undo-{agent}": f"{run}/undo",
            f"session-{agent}-written": f"{stage.at(f'{agent}-written')}?view=removed",
        }
        pages[f"backups-{agent}"] = f"{stage.at(f'{agent}-written')}/backups"
    pages["timeline-opencode"] = f"{opencode}/timeline"
    server.wait_for(lambda: "By who compacted" in text_of(server.get("/insights/costs")))
    return pages


def _place_agents(home: AgentHome) -> None:
    claude = home.claude(1, compacted_claude_session(title("claude-talk")).content)
    place_subagent(claude, title("subagent"))
    register_as_open(home.claude(2, claude_session(title("claude-open")).content), os.getpid())
    home.claude(3, claude_session(title("claude-written")).content)
    home.claude(4, damaged(claude_session(title("claude-damaged")).content))
    home.claude(5, summarised_claude_session(title("claude-summarised")).content)
    home.codex(1, compacted_codex_thread(title("codex-talk")).content)
    home.codex(2, codex_thread(title("codex-open")).content)
    home.codex(3, codex_thread(title("codex-written")).content)
    home.codex(4, damaged(codex_thread(title("codex-damaged")).content))
    home.codex(5, compacted_codex_thread(title("codex-archived")).content, "archived_sessions")
    for name in ("talk", "open", "written"):
        opencode_session(home.opencode, f"ses_{name}", title(f"opencode-{name}"))
    home.amp()


def drafts(stage: Stage) -> Pages:
    """Drafts of summaries, one in each state; the lab: its form, an experiment that has ended, and one that waits."""
    for name in ("asked", "ended", "written"):
        recorded = turns_of_work(turns=8)
        recorded[1]["message"]["content"] = title(f"summary-{name}")
        stage.agents.pi(name, recorded)
    stage.put_bytes("real", long_session())
    stage.server.session("real.jsonl")
    stage.add_model()
    server = stage.server
    asked, ended, written = (stage.at(f"summary-{name}") for name in ("asked", "ended", "written"))
    model = {"planner": "acme/claude-x"}
    queued = server.post(f"{asked}/summarise?planner=acme/claude-x", f"{asked}/summarise", **model)
    broken = server.post(f"{ended}/summarise?planner=acme/claude-x", f"{ended}/summarise", **model)
    words = ("The connection to gateway.example:8443 broke off. Nothing was written.", "## Goal\nLook at")
    stage.change_draft(broken, FAILED, *words)
    ready, appended = (_written_draft(server, written, words) for words in (SUMMARY, "Nothing of it."))
    stage.change_draft(appended, APPENDED)
    return {
        "summarise": f"{written}/summarise?planner=acme/claude-x",
        "summarise-branch": f"{written}/summarise?entry=e4",
        "draft-queued": queued,
        "draft-failed": broken,
        "draft": ready,
        "draft-preview": f"{ready}?show=preview",
        "draft-changes": f"{ready}?show=changes",
        "draft-replaced": f"{ready}/replaced",
        "draft-append": f"{ready}/append",
        "draft-appended": appended,
        **_experiments(stage),
    }


def _written_draft(server: Server, session: str, words: str) -> str:
    """A draft that the user wrote."""
    draft = server.post(f"{session}/summarise", f"{session}/summarise", planner="hand")
    server.post(draft, draft, text=words)
    return draft


def _experiments(stage: Stage) -> Pages:
    server = stage.server
    chosen: dict[str, str | list[str]] = {"newest": "200", "strategy": ["embedded", "oldest"], "keep": ["0.7", "0.5"]}
    done = server.post("/insights/benchmark/new", "/insights/benchmark/new", planner="none", **chosen)
    environment = {**server.environment, "DJANGO_SETTINGS_MODULE": "redline.settings"}
    measure = [sys.executable, "-c", MEASURE, done.rsplit("/", 1)[1]]
    subprocess.run(measure, env=environment, cwd=server.root, check=True)
    return {
        "lab": "/insights/benchmark",
        "lab-form": "/insights/benchmark/new",
        "lab-form-with-a-model": "/insights/benchmark/new?keep=0.5&strategy=embedded&newest=5&planner=acme/claude-x",
        "lab-experiment": done,
        "lab-experiment-lost": f"{done}?keep=0.5&strategy=oldest",
        "lab-experiment-queued": server.post(
            "/insights/benchmark/new", "/insights/benchmark/new", planner="none", **chosen
        ),
    }


PARTS: Final[tuple[Callable[[Stage], Pages], ...]] = (sessions, runs, reviews, agents, drafts)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_page_fits_and_is_accessible(idle_server, browse, part):
    with idle_place(idle_server, part.__name__) as server:
        pages = {name: path for name, path in part(Stage(server)).items() if IN_EVERY_VIEW or name not in ALIKE}
        watched = browse(server)
        watched.allow(REFUSED)
        have_no_faults(watched, pages, first=PARTS.index(part))
