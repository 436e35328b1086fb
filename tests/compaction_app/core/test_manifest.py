"""The manifest: enough to choose from, never the transcript."""

import json

from compaction_app.core.manifest import manifest_of
from sessions_app.sessionlog.protection import Protection
from tests.factories import assistant, bash, branch_summary, call, custom, result, text, transcript_of, user


def test_the_manifest_shows_the_80_largest_deletable_entries_in_transcript_order():
    sizes = [(number * 37) % 101 + 1 for number in range(120)]
    manifest = manifest_of(transcript_of(user("x" * 9_000), *(assistant(text("y" * 4 * size)) for size in sizes)))
    largest = sorted(sizes, reverse=True)[:80]
    shown = [entry.tokens for entry in manifest.entries]
    assert len(shown) == 80
    assert sorted(shown, reverse=True) == largest
    positions = [int(entry.entry_id[1:]) for entry in manifest.entries]
    assert positions == sorted(positions)
    assert (manifest.deletable, manifest.deletable_tokens) == (120, sum(sizes))


def test_a_preview_has_at_most_240_utf16_units():
    words = ["a" * 240, "b" * 241, "🙂" * 120, "🙂" * 121]
    manifest = manifest_of(transcript_of(user("go"), *(assistant(text(one)) for one in words)))
    previews = [entry.preview for entry in manifest.entries]
    assert previews == ["a" * 240, "b" * 240 + "…", "🙂" * 120, "🙂" * 120 + "…"]


def test_protected_entries_are_counted_per_reason_and_not_shown():
    manifest = manifest_of(
        transcript_of(
            user("secret task"),
            user("another"),
            custom("note"),
            branch_summary("tried"),
            assistant(text("oh"), stopReason="error"),
            result("c9", "no such file", error=True),
            bash("make", "failed", 1),
            assistant(text("keep me out"), call("c1")),
            user("the last word"),
            preserve_recent=1,
        )
    )
    assert manifest.protected == {
        Protection.USER: 2,
        Protection.CUSTOM: 1,
        Protection.BRANCH_SUMMARY: 1,
        Protection.ASSISTANT_ERROR: 1,
        Protection.TOOL_ERROR: 1,
        Protection.FAILED_COMMAND: 1,
        Protection.RECENT: 1,
    }
    assert [entry.entry_id for entry in manifest.entries] == ["e8"]


def test_the_manifest_prints_as_json():
    manifest = manifest_of(transcript_of(user("go"), assistant(text("abcd"), call("c1"))))
    assert json.loads(json.dumps(manifest.to_json())) == {
        "entries": [
            {"entryId": "e2", "role": "assistant", "tokens": 3, "blocks": 2, "preview": "abcd\ntoolCall c1 read {}"}
        ],
        "deletable": 1,
        "deletableTokens": 3,
        "protected": {"user": 1},
    }
