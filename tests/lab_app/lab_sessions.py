"""A session that the lab can measure: its first output names what its last messages need."""

from typing import Any, Final

from tests.factories import assistant, call, chain, result, text, user

NAMES: Final = [f"src/module_{number:02}.py" for number in range(12)]
LONG: Final = "so it goes on and on and on with plain words only " * 160


def worked(steps: int = 40, wish: str = "Go on until it is done.") -> list[dict[str, Any]]:
    """The messages: a wish, steps with long outputs, and a change of each of the twelve modules."""
    said: list[dict[str, Any]] = [user(wish)]
    for step in range(steps):
        shown = " ".join(NAMES) if step == 0 else f"nothing of note {step}"
        said += [assistant(call(f"c{step}")), result(f"c{step}", f"{shown}\n{LONG}")]
    return [*said, *(assistant(text(f"I change {name}.")) for name in NAMES), user("Well done.")]


def worked_session(steps: int = 40, wish: str = "Go on until it is done.") -> list[dict[str, Any]]:
    """The lines of its file."""
    return chain(*worked(steps, wish))
