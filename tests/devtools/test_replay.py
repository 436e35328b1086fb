"""Replay loss on a branch with known needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from compaction_app.core.references import references
from compaction_app.core.transcript import Transcript
from devtools.replay import Loss, kept_texts, replay
from sessions_app.sessionlog.targets import Target
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    result,
    session_bytes,
    text,
    transcript_of,
    user,
)

Recorded = dict[str, Any]

NAMES = [f"src/module_{number:02}.py" for number in range(12)]
PADDING = "so it goes on and on and on with plain words only " * 800
"""About 10,000 tokens without a reference."""


def branch(**places: Recorded) -> list[Recorded]:
    """Fifty messages, e1 to e50, cut before e21, e31 and e41. Some are given, the others contain nothing relevant."""
    messages = [assistant(text("plain words only")) for _ in range(50)]
    messages[0] = user(PADDING)
    for entry_id, message in places.items():
        messages[int(entry_id[1:]) - 1] = message
    return messages


def losses(messages: list[Recorded], *targets: Target, **settings: object) -> list[Loss]:
    entries, texts = branch_and_texts(session_bytes(chain(*messages)))

    def plan(transcript: Transcript) -> Sequence[Target]:
        return [target for target in targets if target.entry_id in transcript]

    return list(replay(entries, texts, settings, plan))


def says(names: list[str]) -> Recorded:
    return assistant(text(" and ".join(names)))


def test_a_deleted_reference_that_is_needed_again_is_lost() -> None:
    messages = branch(e3=says(NAMES), e25=says(NAMES))
    assert losses(messages, Target("e3")) == [Loss(cut=0.4, needed=12, lost=12)]
    assert losses(messages, Target("e4")) == [Loss(cut=0.4, needed=12, lost=0)]
    assert losses(messages) == [Loss(cut=0.4, needed=12, lost=0)]


def test_a_reference_that_is_also_in_kept_text_is_not_lost() -> None:
    messages = branch(e3=says(NAMES), e5=says(NAMES[:7]), e25=says(NAMES))
    (loss,) = losses(messages, Target("e3"))
    assert (loss.needed, loss.lost, loss.share) == (12, 5, 5 / 12)


def test_a_deleted_block_loses_only_its_own_references() -> None:
    messages = branch(e3=assistant(text(" ".join(NAMES[:4])), text(" ".join(NAMES[4:]))), e25=says(NAMES))
    assert [loss.lost for loss in losses(messages, Target("e3", 0))] == [4]
    assert [loss.lost for loss in losses(messages, Target("e3", 1))] == [8]


def test_each_cut_uses_its_own_prefix_and_forty_later_messages() -> None:
    messages = branch(e3=says(NAMES), e35=says(NAMES))
    assert [(loss.cut, loss.lost) for loss in losses(messages, Target("e3"))] == [(0.4, 12), (0.6, 12)]
    messages = branch(e3=says(NAMES), e50=says(NAMES))
    assert [loss.cut for loss in losses(messages, Target("e3"))] == [0.4, 0.6, 0.8]
    far = [*branch(e3=says(NAMES)), *(assistant(text("plain words only")) for _ in range(50))]
    # A hundred messages, cut before e41, e61 and e81: e81 is one message beyond the first cut's forty.
    far[80] = says(NAMES)
    assert [loss.cut for loss in losses(far, Target("e3"))] == [0.6, 0.8]


@pytest.mark.parametrize(
    "places",
    [
        # Still visible: the prefix's last two messages contain it.
        {"e3": says(NAMES), "e19": says(NAMES), "e25": says(NAMES)},
        {"e3": says(NAMES), "e20": says(NAMES), "e25": says(NAMES)},
        # Shown to the model again before it wrote it.
        {"e3": says(NAMES), "e22": user(" ".join(NAMES)), "e25": says(NAMES)},
        # Not in the prefix: the model has it from elsewhere.
        {"e25": says(NAMES)},
        # Not written by an assistant.
        {"e3": says(NAMES), "e25": user(" ".join(NAMES))},
        # Too few to count.
        {"e3": says(NAMES[:9]), "e25": says(NAMES[:9])},
    ],
)
def test_references_not_needed_from_the_prefix_are_not_counted(places: dict[str, Recorded]) -> None:
    assert losses(branch(**places), Target("e3")) == []


def test_a_reference_just_before_the_last_two_messages_is_needed() -> None:
    messages = branch(e18=says(NAMES), e25=says(NAMES))
    assert losses(messages, Target("e18")) == [Loss(cut=0.4, needed=12, lost=12)]


def test_the_arguments_of_a_call_count_as_written_but_its_id_does_not() -> None:
    calls = [call(name, "read", path=name.replace("module", "other")) for name in NAMES]
    ids_only = branch(e3=says(NAMES), e25=assistant(*calls))
    assert losses(ids_only, Target("e3")) == []
    calls = [call(f"c{number}", "read", path=name) for number, name in enumerate(NAMES)]
    messages = branch(e3=says(NAMES), e25=assistant(*calls))
    assert losses(messages, Target("e3")) == [Loss(cut=0.4, needed=12, lost=12)]


def test_a_cut_moves_past_tool_results() -> None:
    # The cut before e21 moves to e23: e21 and e22 are then the last two messages of the prefix.
    moved = branch(
        e3=says(NAMES), e21=result("c1", " ".join(NAMES)), e22=result("c1", "plain"), e25=says(NAMES)
    )
    assert losses(moved, Target("e3")) == []


def test_a_branch_that_is_too_short_or_too_small_is_skipped() -> None:
    messages = branch(e3=says(NAMES), e25=says(NAMES))
    assert losses(messages[:39], Target("e3")) == []
    assert losses([user("short"), *messages[1:]], Target("e3")) == []


def test_the_planner_gets_the_prefix_with_the_settings_of_the_run() -> None:
    entries, texts = branch_and_texts(session_bytes(chain(*branch(e3=says(NAMES), e25=says(NAMES)))))
    given: list[Transcript] = []

    def plan(transcript: Transcript) -> Sequence[Target]:
        given.append(transcript)
        return []

    list(replay(entries, texts, {"preserve_recent": 5, "compression_ratio": 0.3}, plan))
    (prefix,) = given
    assert [entry.entry_id for entry in prefix.entries] == [f"e{number}" for number in range(1, 21)]
    assert (prefix.parameters.preserve_recent, prefix.parameters.compression_ratio) == (5, 0.3)


def test_the_kept_texts_are_given_block_by_block() -> None:
    transcript = transcript_of(user("go"), assistant(text("a"), text("b")), assistant(text("c")))
    assert list(kept_texts(transcript, [])) == ["go", "a", "b", "c"]
    assert list(kept_texts(transcript, [Target("e2", 0), Target("e3")])) == ["go", "b"]


def test_ordinary_words_are_not_references() -> None:
    words = (
        "the parser of src/app/main.ts:42 called readFile and read_it with a-b in v2 at Monday or HTTP200 x_"
    )
    assert references(words) == {"src/app/main.ts:42", "readFile", "read_it", "HTTP200"}
    assert references("") == set()
