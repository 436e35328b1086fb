"""What `?` says about each page: its name, and five lines on what it shows and what can be done there.

A page is known by the name of its route. A test holds this table and the routes equal.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from django.http import HttpRequest


class PageHelp(NamedTuple):
    """The name of a page, and what a reader who sees it for the first time has to know."""

    title: str
    lines: tuple[str, ...]


GENERAL: Final = PageHelp(
    "Redline",
    (
        "Sessions lists what your agents recorded; open one to see what its model still sees.",
        "Compact… plans what can be deleted from its context.",
        "Review shows each proposal; you approve or reject it.",
        "Confirm makes a backup, then writes the change in the agent’s own form.",
        "The inbox has what waits for you; History has every change, and can undo it.",
    ),
)
_LIST: Final = PageHelp(
    "Sessions",
    (
        "Each row is one session of one of your agents, the one used last first.",
        "The gauge shows how much of the model’s window its context fills.",
        "The tick on the gauge is where the agent would compact by itself.",
        "Marks say what waits or what happened; one with a frame leads to it.",
        "Open a row to read the session, or press c on it to compact it.",
    ),
)
_SEARCH: Final = PageHelp(
    "Search",
    (
        "It searches everything that was said and done, in all sessions and on all branches.",
        "All words must be in one text; “a phrase” must be there as it is; -word must not.",
        "Filters such as tool:bash, agent:pi or before:2026-01 narrow it.",
        "A place opens in its session, on its branch, with the words marked.",
        "Ctrl K and ⌘K look for sessions by their titles instead.",
    ),
)
_IMPORT: Final = PageHelp(
    "Import",
    (
        "Session files from another machine are copied here, byte for byte.",
        "They can be read, compacted and downloaded again.",
        "The files that you import are not changed.",
        "A file that is here already is not stored twice.",
        "Deleting an imported session deletes Redline’s copy and its backups.",
    ),
)
_SESSION: Final = PageHelp(
    "Conversation",
    (
        "This is the session as its model sees it, or as it was recorded: the views choose.",
        "The rail shows how full its context is, and what fills it.",
        "Each block of the map is a text, as wide as its tokens; click one to go there.",
        "What is underlined on the map is protected, and is always kept.",
        "Compact… plans what can be deleted. Nothing is written before you confirm.",
    ),
)
_TREE: Final = PageHelp(
    "Tree",
    (
        "A session is a tree: each line is an entry, and a fork begins a branch.",
        "The agent continues one of the branches; the others are kept beside it.",
        "Choose an entry to see what its context would be.",
        "You can continue there, label it, or make a new session from it.",
        "Two branches can be compared entry by entry.",
    ),
)
_TIMELINE: Final = PageHelp(
    "Timeline",
    (
        "The line is the size of the context, turn by turn.",
        "A drop is a compaction: by the agent, or with Redline.",
        "The upper line is the model’s window; the other is where the agent compacts.",
        "A point leads to what that change deleted or replaced.",
        "The table has the same figures.",
    ),
)
_HEALTH: Final = PageHelp(
    "Health",
    (
        "Each line is one problem of the file, with what it means in its agent.",
        "A damaged line is skipped by some agents and stops others.",
        "A problem without a consequence is named, too.",
        "A repaired copy has all that can be read; the file itself is not changed.",
        "What the copy would lack is listed before it is made.",
    ),
)
_SUMMARY: Final = PageHelp(
    "Summary",
    (
        "A summary replaces a stretch of the session by a text.",
        "A model or you can write the draft; you can change every word.",
        "What the draft no longer mentions is listed beside it.",
        "Nothing is appended to the session before you confirm it.",
        "A backup is made first, and the change can be undone.",
    ),
)
_LOST: Final = PageHelp(
    "What a summary lost",
    (
        "Each line is something the conversation mentioned and the summary does not.",
        "What the agent looked up again later is marked.",
        "Names are paths, functions, errors and the like.",
        "A name opens the places where it was mentioned.",
        "The report can be saved as a file.",
    ),
)
_COMPACT: Final = PageHelp(
    "Compact…",
    (
        "Three questions, all filled in: how much to keep, what comes next, and who plans.",
        "The built-in planner is ready in about a second, and sends nothing anywhere.",
        "A model reads the session; the page says first what leaves this machine.",
        "The plan opens by itself when it is ready; else the inbox has it.",
        "Nothing is written before you have reviewed and confirmed the plan.",
    ),
)
_BACKUPS: Final = PageHelp(
    "Backups",
    (
        "Before each change, Redline copies the session, byte for byte.",
        "Verify compares a backup with what was recorded when it was made.",
        "Restore puts a backup in the place of the session, after a page that shows what changes.",
        "A backup can be downloaded, and deleted.",
        "The session as it is now is backed up before a restore, too.",
    ),
)
_INBOX: Final = PageHelp(
    "Inbox",
    (
        "It has what waits for you: agents, plans that are ready, and failures.",
        "An agent waits only until its time has run out; the clock shows it.",
        "A plan stays here until it is confirmed or dismissed.",
        "The number in the header is the number of rows here.",
        "Running and Done are its other tabs.",
    ),
)
_LOG: Final = PageHelp(
    "Planner’s log",
    (
        "It shows step by step how the planner came to its proposals.",
        "While it plans, the steps appear as they happen.",
        "A refused call broke a rule; nothing of it is in the plan.",
        "With a model, it shows what was sent, and what it cost.",
        "Review shows the proposals themselves.",
    ),
)
_REVIEW: Final = PageHelp(
    "Review",
    (
        "The planner proposes deletions; you approve or reject each, or a whole group.",
        "The number on a row is what its button does, with what belongs to it.",
        "Open a row to read the text first; what would be deleted is struck.",
        "The bar above shows what you approved so far, against the target.",
        "Nothing is written before Confirm, and a backup comes first.",
    ),
)
_SELECT: Final = PageHelp(
    "Select",
    (
        "It finds texts by a pattern, by tool or by meaning.",
        "What it finds is not decided yet: look at it first.",
        "One button then approves, rejects or adds all of it.",
        "What is protected is found, but never deleted.",
        "The decision can be undone in one step.",
    ),
)
_CONFIRM: Final = PageHelp(
    "Confirm",
    (
        "It shows what is deleted and what is kept, before anything is written.",
        "Each tick is a yes to something you should know; the button says if one is missing.",
        "You choose how the change is saved: as a new session, or in this one.",
        "A backup of the session is made first, and the result is checked.",
        "If the session has changed since it was planned, nothing is written.",
    ),
)
_RESULT: Final = PageHelp(
    "Result",
    (
        "The first line continues the session in its agent.",
        "The two maps are the context before and after.",
        "Checked says what was verified, and how.",
        "Undo brings everything back, or only some of it.",
        "History has this change, with the backup made before it.",
    ),
)
_UNDO: Final = PageHelp(
    "Undo",
    (
        "Everything comes back, or only what you tick.",
        "What the agent missed since is ticked already.",
        "A call and its result come back together.",
        "A backup is made first, as for every change.",
        "The page says how it is done, and from where the agent continues.",
    ),
)
_HISTORY: Final = PageHelp(
    "History",
    (
        "Each line is one change that Redline made to a session.",
        "It names the backup made before it, and how the change was checked.",
        "What can still be undone has a button.",
        "Each line is sealed by a hash of the one before: a changed line shows.",
        "Backups of all sessions are its other tab.",
    ),
)
_COSTS: Final = PageHelp(
    "What compactions cost",
    (
        "It counts what your agents read again or asked for after a compaction.",
        "Bars compare the months, and who compacted.",
        "What was deleted and never missed is what a compaction saved.",
        "A session’s own page shows each thing that came back.",
        "Nothing is sent anywhere: it reads the recorded sessions.",
    ),
)
_BENCHMARK: Final = PageHelp(
    "Benchmark",
    (
        "It replays your own sessions and compares ways to compact them.",
        "A strategy is better if less of what it deletes is needed later.",
        "The curves show what is lost at each size that is kept.",
        "It only reads: no session is changed.",
        "The figures can be saved as CSV or JSON.",
    ),
)
_SETTINGS: Final = PageHelp(
    "Settings",
    (
        "A value applies at once, unless the page says otherwise.",
        "A value that redline.toml sets is locked, with its line.",
        "Folders are where Redline looks for sessions.",
        "Context windows tell it when a session is almost full.",
        "Everything is kept on this machine.",
    ),
)
_AGENTS: Final = PageHelp(
    "Agents",
    (
        "A connected agent asks Redline before it compacts a session.",
        "It waits for your review as long as you allow, then does what it would have done.",
        "Connect shows what is written to the agent’s settings, before it is.",
        "Test asks Redline as the agent would.",
        "A connection that you end leaves the agent as it was.",
    ),
)
_MODELS: Final = PageHelp(
    "Models",
    (
        "A model can plan a compaction, or write the draft of a summary.",
        "A provider is where its requests go; you agree to that once for each address.",
        "The key is kept in a private file, or is read from your environment.",
        "Prices are used to show what a plan costs, before and after.",
        "The built-in planner needs no model.",
    ),
)

_OF_ROUTES: Final[Mapping[PageHelp, str]] = {
    _LIST: "sessions:list",
    _SEARCH: "sessions:search",
    _IMPORT: "sessions:import sessions:remove",
    _SETTINGS: ("sessions:settings sessions:windows sessions:browser sessions:advanced compaction:compaction_settings"),
    _AGENTS: "sessions:agents sessions:connect_agent sessions:remove_agent",
    _SESSION: "compaction:session compaction:entry compaction:text",
    _TREE: "compaction:tree compaction:compare_branches compaction:move compaction:label compaction:fork_from",
    _TIMELINE: "compaction:timeline compaction:fork",
    _HEALTH: "compaction:doctor",
    _SUMMARY: "compaction:summarise compaction:draft compaction:append_draft",
    _LOST: "compaction:lost compaction:draft_lost",
    _COMPACT: "compaction:compact",
    _BACKUPS: "compaction:backups compaction:restore compaction:delete_backup compaction:all_backups",
    _INBOX: "compaction:runs compaction:handshakes compaction:handshake",
    _LOG: "compaction:run compaction:words",
    _REVIEW: "compaction:review compaction:evidence compaction:stays",
    _SELECT: "compaction:select compaction:select_for_plan",
    _CONFIRM: "compaction:commit",
    _RESULT: "compaction:result",
    _UNDO: "compaction:undo",
    _HISTORY: "compaction:audit",
    _COSTS: "lab:hindsight lab:session_hindsight",
    _BENCHMARK: "lab:experiments lab:new_experiment lab:experiment",
    _MODELS: (
        "compaction:models compaction:model compaction:add_model compaction:remove_model compaction:provider "
        "compaction:add_provider compaction:remove_provider"
    ),
}
HELP: Final[Mapping[str, PageHelp]] = {route: page for page, routes in _OF_ROUTES.items() for route in routes.split()}


def page_help(request: HttpRequest) -> dict[str, PageHelp]:
    """For all templates: what `?` says about the page."""
    route = request.resolver_match.view_name if request.resolver_match is not None else ""
    return {"page_help": HELP.get(route, GENERAL)}
