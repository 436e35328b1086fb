"""A session with every kind of text that is rendered: Markdown, programs, diffs, colours, JSON, a picture."""

from base64 import b64encode

from tests.compaction_app.rendering.test_pictures import png
from tests.factories import assistant, call, chain, compaction, result, session_bytes, text, thinking, user, whole

TASK = """Mend the rendered parser:

```json
{"rows": [1, true], "of": null}
```

- keep *the order*
- add no **dependency**"""
ANSWER = """

# What is slow

The **loop** is in `src/parse.py`, see [the notes](https://docs.example/parse) and [parse.py](src/parse.py).

1. It reads each row twice.
   - The `header` too.
2. It sorts the rows.

> A quote from the notes.

| step | rows | what it does with them |
|---|--:|---|
| parse | 1,204 | reads the `header` first, and then each of the rows in the order of the file |
| write | 88 | |

```python
def parse(path: Path) -> list[str]:  # keep the order
    return [line.strip() for line in path.open() if line and not line.startswith("#") and line != "end of file"]
```

### Next

<system-reminder>Text, not markup.</system-reminder>"""
READ = '     1→import os\n     2→\n     3→def parse(path):  # twice\n     4→    return "x"\n'
TESTS = (
    "\x1b[34m[test]\x1b[0m \x1b[32m....\x1b[0m\x1b[31mF\x1b[0m\x1b[33ms\x1b[0m \x1b[2m[100%]\x1b[0m\n"
    "\x1b[1;31mFAILED\x1b[0m test_parse - \x1b[36mAssertionError\x1b[0m \x1b[35mseen\x1b[0m \x1b[4monce\x1b[0m"
)


def rendered_session() -> bytes:
    path = "/home/dev/project/src/parse.py"
    picture = {"type": "image", "data": b64encode(png(90, 60)).decode(), "mimeType": "image/png"}
    shot = result("c5", "Taken.", name="screenshot")
    shot["content"].append(picture)
    recorded = chain(
        user(TASK),
        assistant(thinking("\n\nI read *it* first."), text(ANSWER), call("c1", "read", path=path)),
        result("c1", READ),
        assistant(call("c2", "edit", path=path, oldText="a = 1\nb = 2\nc = 3", newText="a = 1\nb = 4\nd = 5\nc = 3")),
        result("c2", f"Edited {path}.", name="edit"),
        assistant(call("c3", "bash", command="pytest -q")),
        result("c3", TESTS, name="bash"),
        assistant(call("c4", "search", query="where rows are read twice " * 12, limit=3)),
        result("c4", '{"found": [{"path": "src/parse.py", "line": 3, "is_test": false}], "more": null}'),
        assistant(call("c5", "screenshot", of="the page")),
        shot,
        assistant(text("**Gone** and\n\n- listed with `code`"), call("c6", "write", path="a.py", content="a = 1\n")),
        result("c6", TESTS, name="write"),
        compaction(whole("e12"), whole("e13")),
        user("Go on."),
        assistant(text("Done.")),
    )
    return session_bytes(recorded)
