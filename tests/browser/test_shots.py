"""Every page: it fits its window, it is accessible, and it reports no error.

REDLINE_SHOTS=shots pytest tests/browser/test_shots.py      stores a screenshot of each page as a PNG file
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

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
from tests.browser.chromium import Watched
from tests.browser.rendered_session import rendered_session
from tests.browser.scenarios import (
    LONG_STEPS,
    PausedWorker,
    approve_everything,
    damaged_session,
    decide,
    event_count,
    finished_run,
    forked_session,
    long_session,
    paused_run,
    place_titled,
    start_run,
    start_worker,
    title,
    titled_session,
    undecided_keys,
)
from tests.factories import chain, result, session_bytes, turns_of_work, user
from tests.files import place
from tests.html import text_of
from tests.run_factories import (
    HOST,
    RunFactory,
    add_plan,
    add_turn,
    answered_event,
    asked_event,
    streamed_event,
)
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS

WIDTHS: Final = (390, 1_440)
HEIGHT: Final = 900
ACME: Final = "https://gateway.example:8443/api"
NOBODY: Final = "http://127.0.0.1:1/v1"
LONG_MODEL: Final = "hf.co/someone/Some-Coder-480B-A35B-Instruct-1M-GGUF:UD-Q4_K_XL-and-more-than-that"
A_KEY: Final = "sk-0123456789abcdefghijkl"
AGENTS: Final = {"claude": "boundary", "codex": "compacted", "opencode": "delete"}
"""Agents, and the writer of each by which a session is compacted here."""
MODEL_RUNS: Final = ("model-streams", "model-failed", "model-fifty")
REFUSED: Final = r"the server responded with a status of (400|403|404|409)"
FAILED: Final = (
    "UPDATE compaction_app_summarydraft SET state = 'failed', failure = ?, generated = ? WHERE id = ?"
)
APPENDED: Final = "UPDATE compaction_app_summarydraft SET state = 'appended', appended_id = 'e9' WHERE id = ?"
SUMMARY: Final = "## Goal\nFind why the cache is slow.\n\n## Next Steps\nRead src/cache_0.py again."
AXE_SCRIPT: Final = Axe().axe_script
AXE_TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
AXE_ALL: Final = {
    "runOnly": {"type": "tag", "values": AXE_TAGS},
    "rules": {"region": {"enabled": True}},
    "resultTypes": ["violations"],
}
AXE_COLOURS: Final = {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
    "resultTypes": ["violations"],
}
"""The rules of `AXE_ALL` that depend on the colour scheme, which is all that differs between light and dark."""
GENERIC_FONTS: Final = """() => {
    for (const [name, font] of [["--sans", "sans-serif"], ["--serif", "serif"], ["--mono", "monospace"]])
        document.documentElement.style.setProperty(name, font);
}"""
OWN_FONTS: Final = """() => {
    for (const name of ["--sans", "--serif", "--mono"]) document.documentElement.style.removeProperty(name);
}"""
OUTLINE: Final = Path(__file__).with_name("outline.js").read_text(encoding="utf-8")
MEASURE: Final = (
    "import sys, django; django.setup(); "
    "from compaction_app.lab.measuring import measure_experiment; measure_experiment(int(sys.argv[1]), 'shots')"
)
"""A worker of one experiment."""


class Stage:
    """A server with a session for each page, and the URLs of all pages by name."""

    def __init__(self, server: Server, nobody: Server) -> None:
        self.server = server
        self.nobody = nobody
        self.workers: list[Any] = []
        self.pages: dict[str, str] = {}
        self._sessions()
        self._runs()
        self._model_runs()
        self._models()
        self._reviews()
        self._written()
        self._agents()
        self._drafts()
        self._experiments()
        self._refused()
        self.server.wait_for(lambda: "interrupted" in server.get(self.pages["run-interrupted"]))
        self.server.wait_for(lambda: "searched" in text_of(server.get(self.pages["search"])))
        self.server.wait_for(lambda: "By agent" in text_of(server.get(self.pages["hindsight"])))

    def at(self, name: str) -> str:
        return self.server.session(title(name))

    def _sessions(self) -> None:
        real = self.server.session("real.jsonl")
        forked = self.at("forked")
        rendered = self.server.session("rendered.jsonl")
        self.real = real
        self.pages |= {
            "list": "/",
            "list-filtered-to-nothing": "/?q=nothing+of+this+name",
            "session-sees": f"{real}?view=sees",
            "session-all": f"{real}?view=all",
            "session-removed-nothing": f"{real}?view=removed",
            "session-broken": self.at("broken"),
            "session-damaged": self.at("damaged"),
            "doctor": f"{self.at('damaged')}/doctor",
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
            "agents": "/agents",
            "connect": "/agents/claude-code/connect",
            "connect-extension": "/agents/pi/connect",
            "remove-connection-of-none": "/agents/codex/remove",
        }

    def _runs(self) -> None:
        self.pages["run-interrupted"], worker = self._paused("interrupted")
        worker.over.set()
        ended = finished_run(self.server, self.at("ended"))
        below = finished_run(self.server, self.at("below"), keep="1")
        failed = finished_run(self.server, self.at("short"))
        self.pages |= {"run-ended": ended, "run-below": below, "run-failed": failed}
        self.pages["run-running"], _ = self._paused("running")
        self.pages["run-queued"] = start_run(self.server, self.at("queued"))
        self.pages["compact-in-flight"] = f"{self.at('queued')}/compact"
        self.pages["runs"] = "/runs/"
        self.pages["runs-waiting"] = "/runs/?show=waiting"
        self.pages["runs-of-a-kind-without"] = "/runs/?show=replaced"

    def _paused(self, name: str) -> tuple[str, PausedWorker]:
        """A run whose worker is paused in the middle of its work."""
        address = self.at(name)

        def start() -> str:
            page = start_run(self.server, address)
            self.workers.append(start_worker(self.server, page))
            return page

        return paused_run(self.server, start, lambda run: event_count(self.server, run) > 2)

    def _model_runs(self) -> None:
        """Runs of an LLM planner: one in progress, and one for each way to end."""
        for name in MODEL_RUNS:
            self.pages[f"run-{name}"] = page = start_run(self.server, self.at(name))
            database, run = self.server.data / "redline.sqlite3", int(page.rsplit("/", 1)[1])
            factory = RunFactory(database, run)
            self.server.keep_alive(run)
            add_plan(factory, turns=3)
            if name == "model-streams":
                add_turn(factory, 4, answer=False)
                self.pages["words"] = f"{page}/requests/2"
            elif name == "model-failed":
                add_turn(factory, 4, answer=False)
                factory.end("failed", f"{HOST}: the credit is used up.", f"{HOST}: the credit is used up.")
            else:
                calls = [["call", index, "context_search_transcript"] for index in range(50)]
                factory.add_all(
                    [asked_event(4), streamed_event(4, *calls), answered_event(4, calls=50, estimated=True)]
                )
                factory.add_call(4, 0, "context_search_transcript", {"pattern": "a"}, sentence="No match.")
        self.server.post("/providers/add", "/providers/add", name="acme", dialect="anthropic", base_url=ACME)
        limits = {
            "window": "200000",
            "output_limit": "8000",
            "thinking_levels": "high",
            "thinking_style": "budget",
        }
        self.server.post("/models/add", "/models/add", provider="acme", name="claude-x", **limits)
        self.pages["compact-model"] = f"{self.at('ended')}/compact?planner=acme/claude-x"

    def _models(self) -> None:
        """Providers of each kind, and models: one with prices, one with a long name and its own address."""
        acme, ours = {"provider": "acme"}, {"provider": "ours"}
        limits = {"window": "262144", "output_limit": "8192", "thinking_style": "budget"}
        preset = "/providers/add?for=llama-cpp"
        self.server.post(preset, "/providers/add", name="ours", dialect="openai", base_url=NOBODY, key=A_KEY)
        own = {"base_url": "http://127.0.0.1:2/v1", "price_in": "0", "price_out": "0"}
        self.server.post("/models/add", "/models/add", name=LONG_MODEL, **ours, **own, **limits)
        prices = {"price_in": "3", "price_out": "15", "price_cache_read": "0.3", "price_cache_write": "3.75"}
        self.server.post("/models/add", "/models/add", name="claude-y", **acme, **prices, **limits)
        self.server.post("/models", "/providers/acme/agreement", origin="https://gateway.example:8443")
        moved = {"name": "moved", "dialect": "openai"}
        self.server.post("/providers/add", "/providers/add", **moved, base_url=NOBODY, key=A_KEY)
        self.server.post("/models", "/providers/moved/agreement")
        self.server.post("/providers/moved", "/providers/moved", **moved, base_url=ACME)
        edit = html.elements(self.server.get("/models"), 'a[href^="/models/"][href$="/remove"]')[0]
        model = str(edit.attributes["href"]).removesuffix("/remove")
        self.pages |= {
            "models": "/models",
            "model-add": "/models/add?provider=anthropic&name=claude-z",
            "model-edit": model,
            "model-remove": f"{model}/remove",
            "provider-add": "/providers/add",
            "provider-preset": preset,
            "provider-edit": "/providers/ours",
            "provider-key": "/providers/openai",
            "provider-remove": "/providers/ours/remove",
        }

    def _reviews(self) -> None:
        run = finished_run(self.server, self.real, keep="60")
        keys = undecided_keys(self.server, run)
        for kind, key in zip(("approve", "reject", "approve", "approve"), keys, strict=False):
            decide(self.server, run, **{kind: key})
        decide(
            self.server, run, add=html.values(self.server.get(f"{run}/stays?from=0&to=999999999"), "add")[0]
        )
        self.pages |= {
            "review": f"{run}/review",
            "review-stays": f"{run}/stays?from=0&to=40",
            "evidence": f"{run}/evidence?of={self._read_again(run)}&all=1",
            "evidence-names": f"{run}/evidence?of={keys[-1]}",
            "select": f"{run}/select?by=pattern&what=e",
            "select-refused": f"{run}/select?by=pattern&what=/(/",
            "select-for-plan": f"{self.real}/select?by=tool&what=read",
            "review-failed": f"{self.pages['run-failed']}/review",
            "review-at-work": f"{self.pages['run-queued']}/review",
            "commit-short": f"{run}/commit",
            "commit-undecided": f"{run}/commit?undecided=1",
            "commit-spot-check": f"{run}/commit{self._first(f'{run}/commit?undecided=1', '?undecided=1&look=')}",
            "compact-waiting": f"{self.real}/compact",
        }
        live = finished_run(self.server, self.at("live"), keep="10")
        os.utime(self.server.root / "live.jsonl")
        decide(self.server, live, approve=undecided_keys(self.server, live)[0])
        self.pages["commit-confirmations"] = f"{live}/commit"
        changed = finished_run(self.server, self.at("changed"))
        approve_everything(self.server, changed)
        place_titled(self.server.root, "changed", steps=6)
        self.pages |= {"commit-conflict": f"{changed}/commit", "review-conflict": f"{changed}/review"}

    def _read_again(self, run: str) -> str:
        """The key of a proposal with lines that are read again later."""
        pages = (
            (key, self.server.get(f"{run}/evidence?of={key}")) for key in undecided_keys(self.server, run)
        )
        return next(key for key, page in pages if html.elements(page, ".side-by-side"))

    def _written(self) -> None:
        address = self.at("written")
        run = finished_run(self.server, address)
        approve_everything(self.server, run)
        result = self.server.post(f"{run}/commit", f"{run}/commit")
        assert result == f"{run}/result"
        backups = f"{address}/backups"
        restore = html.elements(self.server.get(backups), 'a[href$="/restore"]')[0]
        backup = str(restore.attributes["href"]).removesuffix("/restore")
        self.server.wait_for(lambda: "Nothing was removed" not in self.server.get(f"{address}?view=removed"))
        self.pages |= {
            "session-removed": f"{address}?view=removed",
            "session-compacted": f"{address}?view=all",
            "result": result,
            "result-reason": f"{result}{self._first(result, '?reason=')}",
            "undo": f"{run}/undo",
            "undo-nothing-chosen": f"{run}/undo?choice=shown",
            "run-committed": run,
            "review-committed": f"{run}/review",
            "backups": backups,
            "restore": f"{backup}/restore",
            "delete": f"{backup}/delete",
            "audit": "/audit",
            "backups-of-all": "/backups",
            "backups-under-way": "/backups?done=1",
        }

    def _first(self, path: str, beginning: str) -> str:
        """The first address on a page that begins so."""
        addresses = (address for _, address in html.links(self.server.get(path)))
        return next(address for address in addresses if address.startswith(beginning))

    def _agents(self) -> None:
        """The pages of other agents' sessions."""
        claude, codex, opencode = (self.at(f"{name}-talk") for name in AGENTS)
        self.pages |= {
            "list-of-an-agent": "/?agent=claude-code",
            "list-of-subagents": "/?show=subagents",
            "session-claude": f"{claude}?view=all",
            "session-subagent": html.link(self.server.get(claude), title("subagent")),
            "session-codex": f"{codex}?view=all",
            "session-opencode": opencode,
            "session-amp": self.at("thread"),
            "timeline-claude": f"{claude}/timeline",
            "lost": f"{self.at('claude-summarised')}/lost",
            "hindsight": "/lab/hindsight",
            "hindsight-of-none": "/lab/hindsight?month=2001-01",
            "session-hindsight": f"{self.at('claude-summarised')}/hindsight",
            "session-hindsight-codex": f"{codex}/hindsight",
            "lost-codex": f"{codex}/lost",
            "lost-nothing": f"{self.at('claude-written')}/lost",
            "tree-claude": f"{claude}/tree",
            "tree-codex": f"{codex}/tree",
            "tree-opencode": f"{opencode}/tree",
            "timeline-codex": f"{codex}/timeline",
            "session-archived": self.at("codex-archived"),
            "timeline-archived": f"{self.at('codex-archived')}/timeline",
            "doctor-claude": f"{self.at('claude-damaged')}/doctor",
            "doctor-codex": f"{self.at('codex-damaged')}/doctor",
            "compact-opencode": f"{opencode}/compact",
            "commit-handoff": f"{self._approved('thread')}/commit",
        }
        for agent in ("codex", "opencode"):
            run = self._approved(f"{agent}-open")
            self.pages |= {f"review-{agent}": f"{run}/review", f"commit-{agent}": f"{run}/commit"}
        self.pages["commit-writer-refused"] = f"{self.pages['commit-opencode']}?writer=prune"
        self.pages["commit-open-elsewhere"] = f"{self._approved('claude-open')}/commit?writer=boundary"
        for agent, writer in AGENTS.items():
            written = f"{agent}-written"
            run = self._approved(written)
            commit = f"{run}/commit?writer={writer}"
            yes = html.values(self.server.get(commit), "yes")
            self.pages |= {
                f"result-{agent}": self.server.post(commit, f"{run}/commit", yes=yes),
                f"undo-{agent}": f"{run}/undo",
                f"session-{written}": f"{self.at(written)}?view=removed",
            }
        self.pages["backups-codex"] = f"{self.at('codex-written')}/backups"
        self.pages["backups-opencode"] = f"{self.at('opencode-written')}/backups"
        self.pages["timeline-opencode"] = f"{self.at('opencode-written')}/timeline"

    def _drafts(self) -> None:
        """Drafts of summaries: one in each state."""
        asked, ended, written = (self.at(f"summary-{name}") for name in ("asked", "ended", "written"))
        start, model = f"{asked}/summarise", {"planner": "acme/claude-x"}
        queued = self.server.post(f"{start}?planner=acme/claude-x", start, **model)
        broken = self.server.post(f"{ended}/summarise?planner=acme/claude-x", f"{ended}/summarise", **model)
        words = ("The connection to gateway.example:8443 broke off. Nothing was written.", "## Goal\nLook at")
        set_draft(self.server, broken, FAILED, *words)
        ready, appended = (self._written_draft(written, words) for words in (SUMMARY, "Nothing of it."))
        self.pages |= {
            "summarise": f"{written}/summarise?planner=acme/claude-x",
            "summarise-branch": f"{written}/summarise?entry=e4",
            "summarise-nothing": f"{self.real}/summarise",
            "draft-queued": queued,
            "draft-failed": broken,
            "draft": ready,
            "draft-preview": f"{ready}?show=preview",
            "draft-changes": f"{ready}?show=changes",
            "draft-replaced": f"{ready}/replaced",
            "draft-append": f"{ready}/append",
        }
        set_draft(self.server, appended, APPENDED)
        self.pages["draft-appended"] = appended

    def _written_draft(self, session: str, words: str) -> str:
        """A draft that the user wrote."""
        draft = self.server.post(f"{session}/summarise", f"{session}/summarise", planner="hand")
        self.server.post(draft, draft, text=words)
        return draft

    def _experiments(self) -> None:
        """The lab: the form, an experiment that has ended, and one that waits for a worker."""
        chosen: dict[str, str | list[str]] = {
            "newest": "200",
            "strategy": ["embedded", "oldest"],
            "keep": ["0.7", "0.5"],
        }
        done = self.server.post("/lab/new", "/lab/new", planner="none", **chosen)
        measure = [sys.executable, "-c", MEASURE, done.rsplit("/", 1)[1]]
        environment = {**self.server.environment, "DJANGO_SETTINGS_MODULE": "redline.settings"}
        subprocess.run(measure, env=environment, cwd=self.server.root, check=True)
        self.pages |= {
            "lab": "/lab/",
            "lab-form": "/lab/new",
            "lab-form-with-a-model": "/lab/new?keep=0.5&strategy=embedded&newest=5&planner=acme/claude-x",
            "lab-experiment": done,
            "lab-experiment-lost": f"{done}?keep=0.5&strategy=oldest",
            "lab-experiment-queued": self.server.post("/lab/new", "/lab/new", planner="none", **chosen),
        }

    def _approved(self, name: str) -> str:
        """A run whose proposals are all approved."""
        run = finished_run(self.server, self.at(name))
        approve_everything(self.server, run)
        return run

    def _refused(self) -> None:
        gone = self.at("gone")
        (self.server.root / "gone.jsonl").unlink()
        empty = self.server.session("empty.jsonl")
        self.pages |= {
            "session-gone": gone,
            "session-empty": empty,
            "tree-empty": f"{empty}/tree",
            "nothing-here": "/nothing/here",
        }

    def end(self) -> None:
        for one in self.workers:
            one.send_signal(signal.SIGKILL)
            one.wait()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    base = tmp_path_factory.mktemp("shots")
    root = base / "all" / "sessions"
    place(root / "real.jsonl", long_session())
    place(root / "forked.jsonl", forked_session())
    place(root / "rendered.jsonl", rendered_session())
    for name in ("ended", "below", "queued", "live", "changed", "written", "gone", *MODEL_RUNS):
        place_titled(root, name)
    for name in ("interrupted", "running"):
        place_titled(root, name, steps=LONG_STEPS, words=10)
    place(root / "short.jsonl", session_bytes(chain(user(title("short")))))
    place(root / "broken.jsonl", session_bytes(chain(user(title("broken")), result("c1"), user("Go on."))))
    place(root / "damaged.jsonl", damaged_session("damaged"))
    place(root / "empty.jsonl", session_bytes(titled_session("empty")[:1]))
    agents = AgentHome(base / "all" / "home")
    place_agents(agents)
    roots = [{"path": str(root), "agent": "atomic"}, *agents.roots]
    place(base / "none" / "data" / "demo_made", b"").parent.chmod(0o700)
    with (
        start_server(
            base / "all", REDLINE_WORK_IN="worker", ANTHROPIC_API_KEY=A_KEY, REDLINE_ROOTS=json.dumps(roots)
        ) as server,
        start_server(base / "none") as nobody,
    ):
        staged = Stage(server, nobody)
        yield staged
        staged.end()


def place_agents(agents: AgentHome) -> None:
    """For each agent a session that its client has compacted or has open, a damaged one, and one to compact."""
    claude = agents.claude(1, compacted_claude_session(title("claude-talk")).content)
    place_subagent(claude, title("subagent"))
    register_as_open(agents.claude(2, claude_session(title("claude-open")).content), os.getpid())
    agents.claude(3, claude_session(title("claude-written")).content)
    agents.claude(4, damaged(claude_session(title("claude-damaged")).content))
    agents.claude(5, summarised_claude_session(title("claude-summarised")).content)
    agents.codex(1, compacted_codex_thread(title("codex-talk")).content)
    agents.codex(2, codex_thread(title("codex-open")).content)
    agents.codex(3, codex_thread(title("codex-written")).content)
    agents.codex(4, damaged(codex_thread(title("codex-damaged")).content))
    agents.codex(5, compacted_codex_thread(title("codex-archived")).content, "archived_sessions")
    for name in ("talk", "open", "written"):
        opencode_session(agents.opencode, f"ses_{name}", title(f"opencode-{name}"))
    agents.amp()
    for name in ("asked", "ended", "written"):
        recorded = turns_of_work(turns=8)
        recorded[1]["message"]["content"] = title(f"summary-{name}")
        agents.pi(name, recorded)


def set_draft(server: Server, draft: str, statement: str, *values: str) -> None:
    """Change the row of a draft, as a worker does."""
    database, number = server.data / "redline.sqlite3", int(draft.rsplit("/", 1)[1])
    with closing(sqlite3.connect(database, timeout=WAIT_SECONDS)) as connection, connection:
        connection.execute(statement, (*values, number))


def add_model(stage: Stage, page: Page) -> None:
    """A message is shown once, after a form."""
    del stage
    page.get_by_label("Context window").fill("32,000")
    page.get_by_role("button", name="Add the model").click()
    expect(page.get_by_role("status")).to_contain_text("Added: ours/")


def open_filter(stage: Stage, page: Page) -> None:
    del stage
    page.keyboard.press("f")
    expect(page.locator("#filter-menu")).to_be_visible()


def decide_elsewhere(stage: Stage, page: Page) -> None:
    """Another window rejects a proposal that this one approves."""
    row = page.locator("li.proposal[data-undecided]").first
    decide(stage.server, stage.pages["review"].removesuffix("/review"), reject=row.get_attribute("data-key"))
    row.locator(".proposal__what").focus()
    page.keyboard.press("a")
    expect(page.get_by_role("alert")).to_contain_text("was rejected and pinned")


def test_every_page_fits_and_is_accessible(stage: Stage, browse: Callable[..., Watched]) -> None:
    size = {"width": WIDTHS[0], "height": HEIGHT}
    known = browse(stage.server, viewport=size, color_scheme="light")
    known.expect(REFUSED)
    empty = browse(stage.nobody, viewport=size, color_scheme="light")
    unknown = browse(stage.server, known=False, viewport=size, color_scheme="light")
    unknown.expect(REFUSED)
    review = stage.pages["review"]
    views: list[tuple[Watched, str, str, Callable[[Stage, Page], None] | None]] = [
        *((known, name, path, None) for name, path in stage.pages.items()),
        (known, "models-message", "/models/add?provider=ours&name=another", add_model),
        (known, "review-filter", review, open_filter),
        (known, "review-decided-elsewhere", review, decide_elsewhere),
        (empty, "list-empty", "/", None),
        (empty, "models-empty", "/models", None),
        (empty, "audit-empty", "/audit", None),
        (empty, "backups-of-all-empty", "/backups", None),
        (unknown, "launch", "/", None),
    ]
    faults: list[str] = []
    for watched, name, path, prepare in views:
        page = watched.open(path)
        if prepare is not None:
            prepare(stage, page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            faults += [f"{name}, {width} px: {fault}" for fault in faults_at_this_width(page, name)]
        page.close()
    assert not faults, "\n".join(faults)


def faults_at_this_width(page: Page, name: str) -> Iterator[str]:
    """The faults of a page, light and dark, in its own fonts and in generic ones; it is light again afterwards."""
    size = page.viewport_size
    assert size is not None
    yield from faults_of(page)
    yield from violations_of(page, AXE_ALL)
    keep(page, f"{name}-{size['width']}-light")
    page.emulate_media(color_scheme="dark")
    yield from (f"dark: {fault}" for fault in violations_of(page, AXE_COLOURS))
    keep(page, f"{name}-{size['width']}-dark")
    page.emulate_media(color_scheme="light")
    page.evaluate(GENERIC_FONTS)
    yield from (f"in generic fonts: {fault}" for fault in faults_of(page))
    page.evaluate(OWN_FONTS)


def faults_of(page: Page) -> list[str]:
    """The faults in the outline of a page, as text."""
    found = page.evaluate(OUTLINE)
    faults = [
        f"{kind}: {one}"
        for kind in ("unlabelled", "unnamed", "empty", "twice", "clipped")
        for one in found[kind]
    ]
    if found["width"] > 0:
        faults.append(f"it is {found['width']} px too wide")
    if found["titles"] != 1:
        faults.append(f"it has {found['titles']} titles")
    if found["ink"] > 1:
        faults.append(f"it has {found['ink']} ink buttons")
    return faults


def violations_of(page: Page, rules: dict[str, Any]) -> list[str]:
    """The findings of axe-core. `AXE_ALL`: WCAG 2.2 at level AA, and that everything is in a landmark.

    The window is as high as the page, so that no sticky bar covers what happens to be below it.
    """
    size = page.viewport_size
    assert size is not None
    tall = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({**size, "height": max(size["height"], tall)})
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("rules => axe.run(rules).then((found) => found.violations)", rules)
    page.set_viewport_size(size)
    return [f"{broken['id']}: {node['html'][:160]}" for broken in found for node in broken["nodes"]]


def keep(page: Page, name: str) -> None:
    """Store a screenshot of the whole page, if requested."""
    directory = os.environ.get("REDLINE_SHOTS")
    if directory:
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
