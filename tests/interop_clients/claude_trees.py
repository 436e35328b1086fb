"""Random sessions of Claude Code with several branches, `last-prompt` lines, boundaries, and lines with more than one
value."""

import json
import random
from typing import Any, Final

from tests.claude_sessions import Object, at, attachment, boundary, call, prompted, reply, result, summary, system, user

MORE: Final = ("\x00" * 7, " and more", json.dumps(user("glued", None)), "{", " \t")


class RandomTree:
    """A session of `size` steps; most of them follow the last line, and some go on from an earlier one."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self._chance = chance
        self._lines: list[Object] = []
        self._glued: dict[int, str] = {}
        """What stands behind the value of a line."""
        self._names: list[str] = []
        for _ in range(size):
            self._grow()

    @property
    def content(self) -> bytes:
        written = (json.dumps(line) + self._glued.get(number, "") for number, line in enumerate(self._lines))
        return "".join(f"{line}\n" for line in written).encode()

    def _grow(self) -> None:
        chance = self._chance
        last = self._names[-1] if self._names else None
        parent = chance.choice(self._names) if self._names and chance.random() < 0.25 else last
        step = chance.random()
        if parent is None or step < 0.3:
            self._add(user(self._name("prompt"), parent))
        elif step < 0.5:
            self._add(reply(self._name("reply"), parent))
        elif step < 0.68:
            self._call(parent)
        elif step < 0.74:
            self._add(attachment(self._name("note"), parent, "noted", type="queued_command", prompt="typed"))
        elif step < 0.79:
            self._add(system(self._name("spent"), parent, "turn_duration"))
        elif step < 0.83:
            self._compact(parent)
        else:
            self._lines.append(prompted(chance.choice(self._names)))

    def _call(self, parent: str) -> None:
        """A reply with one or two calls, each of which mostly has its result."""
        of, calls = self._name("reply"), []
        for _ in range(self._chance.randint(1, 2)):
            name = self._name("call")
            self._add(reply(name, parent, call(f"toolu_{name}"), of=of))
            calls.append(name)
            parent = name
        for name in calls:
            if self._chance.random() < 0.85:
                self._add(result(self._name("result"), name, f"toolu_{name}"))

    def _compact(self, parent: str) -> None:
        name = self._name("boundary")
        self._add(boundary(name, parent))
        self._add(summary(self._name("summary"), name))

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self._lines)}"

    def _add(self, line: dict[str, Any]) -> None:
        if self._chance.random() < 0.08:
            self._glued[len(self._lines)] = self._chance.choice(MORE)
        self._names.append(line["uuid"])
        self._lines.append(line | {"timestamp": at(10 * len(self._lines))})
