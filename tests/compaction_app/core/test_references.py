"""What is a reference."""

from compaction_app.core.references import references


def test_ordinary_words_are_not_references():
    words = "the parser of src/app/main.ts:42 called readFile and read_it with a-b in v2 at Monday or HTTP200 x_"
    assert references(words) == {"src/app/main.ts:42", "readFile", "read_it", "HTTP200"}
    assert references("") == set()
