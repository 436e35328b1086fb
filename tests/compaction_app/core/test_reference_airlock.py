"""The reference airlock gives every answer of the conformance vectors.

The rules that they leave open are those of the airlock itself, with which it is compared in the other tests.
"""

from typing import Any

from compaction_app.core.errors import Refusal
from compaction_app.core.patterns import compile_pattern
from compaction_app.core.transcript import Transcript, prepare
from devtools.conformance import case_lines
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

from . import reference_airlock
from .test_reference_airlock_agreement import entries_of
from .test_vectors import CASES, Case

FACTS = ("matches", "skipped", "deletedTargets", "stats", "error")


def transcript_of(case: Case) -> Transcript:
    """The texts of the vectors' entries are not in the vectors; that these are the right ones is tested there."""
    parser = ATOMIC.parser(ParserState(), [])
    recorded = [found for line in case_lines(case) for found in parser.read(line)]
    branch = SessionTree([found.entry for found in recorded]).branch(case["leafId"])
    texts = {found.entry.id: found.texts for found in recorded}
    transcript = prepare(branch, texts, case["settings"], ATOMIC.generations[-1].rules)
    assert transcript is not None
    return transcript


def test_every_request_is_answered_as_the_agent_answers_it():
    wrong = []
    for case in CASES:
        prepared = case["prepare"]
        for request in case.get("validate", []):
            recent = prepared["parameters"]["preserve_recent"]
            answer = reference_airlock.validate(request["request"], prepared["entries"], recent)
            answer.pop("target", None)
            if answer != {key: value for key, value in request.items() if key != "request"}:
                wrong.append((case["seed"], request))
    assert wrong == []


def test_every_deleting_step_comes_out_as_in_the_agent():
    for case in CASES:
        if "tools" not in case:
            continue
        recent = case["prepare"]["parameters"]["preserve_recent"]
        entries = entries_of(transcript_of(case))
        chosen: list[dict[str, Any]] = []
        for step in case["tools"]["steps"]:
            name, arguments = step["call"]["name"], step["call"]["arguments"]
            if name == "context_delete":
                outcome = reference_airlock.delete(chosen, arguments, entries, recent)
            elif name == "context_grep_delete":
                outcome = grep(chosen, arguments, entries, recent)
            else:
                continue
            facts = {key: step["details"][key] for key in FACTS if key in step["details"]}
            assert outcome == facts, (case["seed"], step["call"])
            chosen = outcome["deletedTargets"]
        assert chosen == case["tools"]["finalTargets"], case["seed"]


def grep(chosen: list[dict[str, Any]], arguments: dict[str, Any], entries: Any, recent: int) -> dict[str, Any]:
    """A `context_grep_delete` call over the plan *chosen*."""
    regex, case_sensitive = arguments.get("regex", False), arguments.get("caseSensitive", False)
    pattern = compile_pattern(arguments["pattern"], regex=regex, case_sensitive=case_sensitive)
    if isinstance(pattern, Refusal):
        nothing = {"matches": [], "skipped": [], "error": pattern.code.value}
        return nothing | reference_airlock.unchanged(chosen, entries)
    return reference_airlock.grep_delete(
        chosen,
        pattern.found_in,
        entries,
        recent,
        target=arguments.get("target", "entry"),
        max_matches=arguments.get("maxMatches", 50),
        expected_match_count=arguments.get("expectedMatchCount"),
    )
