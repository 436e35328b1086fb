"""The cost of rendering: 200 entries of a session as pages load them, rendered and as recorded."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from .figures import Figure

ENTRIES: Final = 400
SHOWN: Final = 200
CALLS: Final = 20
"""The number of calls in one turn."""
_LATER: Final = re.compile(r'hx-get="([^"]+at=[^"]+)"')
_PROSE: Final = """

## What step {number} showed

The loop in `src/export_{number}.py` is **slow**, see [the notes](https://docs.example/{number}):

1. It opens the file for each row.
   - {words}
2. It sorts `rows` twice.

| step | rows | seconds |
|---|--:|--:|
| before | 1,204 | 3.1 |
| after | 1,204 | 0.2 |

```python
def export_{number}(rows: list[str], path: Path) -> int:  # one file for all rows
    with path.open("w") as out:
        return sum(out.write(f"{{row}}\\n") for row in sorted(rows))
```
"""
_PROGRAM: Final = '''import os
from pathlib import Path

def export_{number}(rows, path):
    """Write the rows, {number} at a time."""
    for row in sorted(rows):  # slow
        with open(path, "a") as out:
            out.write(row + "\\n")
    return len(rows) * {number}
'''
_WORDS: Final = "the rows of each part are read once more for every file that names them " * 2


class Browser(Protocol):
    """Sends requests to the measured server."""

    def get(self, path: str, **headers: str) -> str: ...


def rendered_entries() -> Iterator[dict[str, Any]]:
    """A session whose texts are Markdown, programs, edits, coloured outputs and JSON, all of them different."""
    yield {
        "type": "session",
        "version": 3,
        "id": "rendered",
        "timestamp": _moment(0),
        "cwd": "/home/dev/work",
    }
    parent = None
    for number in range(ENTRIES):
        entry_id = f"{number + 1:08x}"
        yield {
            "type": "message",
            "id": entry_id,
            "parentId": parent,
            "timestamp": _moment(number),
            "message": _message(number),
        }
        parent = entry_id


def time_rendering(
    browser: Browser, address: str, median: Callable[[Callable[[], object], int], float], rounds: int
) -> Iterator[Figure]:
    """The times to load SHOWN entries in the parts that a page requests, rendered and as recorded."""
    started = time.perf_counter()
    _load(browser, address, "rendered")
    yield Figure("rendered_200_entries_first", round((time.perf_counter() - started) * 1000, 1), "ms", None)
    plain = median(lambda: _load(browser, address, "recorded"), rounds)
    rendered = median(lambda: _load(browser, address, "rendered"), rounds)
    yield Figure("recorded_200_entries", plain, "ms", None)
    yield Figure("rendered_200_entries", rendered, "ms", 150)
    yield Figure("rendered_to_recorded", round(rendered / plain, 2), "times", 3)


def _load(browser: Browser, address: str, form: str) -> None:
    """Load entries as a reader does who follows the link to later ones."""
    part, shown = f"{address}?view=all", 0
    while shown < SHOWN:
        page = browser.get(f"{part}&texts={form}", **{"HX-Request": "true"})
        later = _LATER.search(page)
        if later is None:
            raise RuntimeError("the page has no link to later entries")
        part, shown = later[1].replace("&amp;", "&"), shown + len(re.findall(r"<article[^>]*\sid=", page))


def _message(number: int) -> dict[str, Any]:
    """A user's message, then by turns a call with its reason, and its result."""
    turn, step = divmod(number, 1 + 2 * CALLS)
    if step == 0:
        return {"role": "user", "content": f"Now *part {turn}*:\n\n- keep `order`\n- add no **dependency**"}
    made = turn * CALLS + (step - 1) // 2
    tool, arguments, output = _call(made)
    if step % 2:
        call = {"type": "toolCall", "id": f"call_{made}", "name": tool, "arguments": arguments}
        words = {"type": "text", "text": _PROSE.format(number=number, words=_WORDS)}
        return {"role": "assistant", "content": [words, call], "stopReason": "toolUse"}
    result = {"role": "toolResult", "toolCallId": f"call_{made}", "toolName": tool, "isError": False}
    return {**result, "content": [{"type": "text", "text": output}]}


def _call(number: int) -> tuple[str, dict[str, Any], str]:
    """A tool, the arguments of a call, and its output."""
    path = f"/home/dev/work/src/export_{number}.py"
    program = _PROGRAM.format(number=number)
    edited = program.replace("# slow", "# once").replace("sorted(rows)", "rows")
    return (
        ("read", {"path": path}, program),
        ("edit", {"path": path, "oldText": program, "newText": edited}, f"Edited {path}."),
        ("bash", {"command": f"pytest -q -k export_{number}"}, f"\x1b[32m{number} passed\x1b[0m in 0.3s"),
        ("search", {"query": f"export_{number}"}, f'{{"found": [{{"line": {number}, "is_test": false}}]}}'),
    )[number % 4]


def _moment(number: int) -> str:
    return f"2026-01-05T{10 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
