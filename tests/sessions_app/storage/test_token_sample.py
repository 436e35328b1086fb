"""The beginning of a branch is counted once, whatever a message contains."""

import msgspec

from sessions_app.sessionlog.entries import Texts
from sessions_app.storage.session_loader import load_session
from sessions_app.storage.token_sample import sample_of
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place

BLOCKS = 200


class Index(int):
    """The index of a block; counts how often blocks are compared with each other."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Index.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_blocks_of_a_message_are_not_compared_with_each_other(tmp_path):
    many = assistant(*[text("a word")] * BLOCKS)
    path = place(tmp_path / "s.jsonl", session_bytes(chain(user("go"), many)))
    loaded = load_session(path)
    branch = [
        msgspec.structs.replace(
            entry,
            blocks=entry.blocks
            and tuple(
                msgspec.structs.replace(block, index=Index(block.index), type=f"{block.type}") for block in entry.blocks
            ),
        )
        for entry in loaded.tree.branch(loaded.leaf_id)
    ]
    texts: dict[str, Texts] = loaded.texts(branch)
    sample = sample_of(branch, lambda entry: texts[entry.id])
    assert sample.tokens > BLOCKS
    assert Index.compared <= BLOCKS
