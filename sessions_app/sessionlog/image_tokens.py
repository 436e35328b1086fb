"""PURE: the tokens of an image by the formulas that providers publish (their guides to images, September 2026).

| models                         | tokens                                    | it is made smaller until it has at most |
|--------------------------------|-------------------------------------------|-----------------------------------------|
| Claude 4.7 and newer           | squares of 28 pixels that cover it        | sides of 2,576 pixels, and 4,784 tokens |
| other Claudes                  | the same                                  | sides of 1,568 pixels, and 1,568 tokens |
| GPT 5.4 and newer              | squares of 32 pixels that cover it, × 1.2 | 2,500 squares                           |
| GPT 5.2 and 5.3, smaller ones  | the same, × 1.2 to 2.46                   | 1,536 squares                           |
| GPT 4o to 5.1, o1, o3          | a base, and more for each square of 512   | sides of 2,048 and 768 pixels           |

Worked example, for an image of 3,840 × 2,160 pixels: Claude Opus 5 sees it as 2,576 × 1,449, which 92 × 52 = 4,784
squares cover. For other models the estimate of the agents has to do.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from .image_size import ImageSize

_CLAUDE: Final = re.compile(r"claude\D*(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_GPT: Final = re.compile(r"(?:^|/)(?:gpt-|(?=o\d|codex))(\S*)")
_STEPS: Final = 60
"""How often an interval is halved to find a scale."""


class _Squares(NamedTuple):
    """A model that sees squares of so many pixels, each of which is so many tokens."""

    side: int
    most: int
    """Squares."""
    longest: int = 1 << 16
    """The pixels of the longer side."""
    tokens: float = 1.0


class _Tiles(NamedTuple):
    """A model that sees squares of 512 pixels."""

    base: int
    each: int


_NEW_CLAUDE: Final = _Squares(28, 4_784, 2_576)
_OLD_CLAUDE: Final = _Squares(28, 1_568, 1_568)
_FIRST_NEW_CLAUDE: Final = (4, 7)
_BY_NAME: Final[tuple[tuple[str, _Squares | _Tiles], ...]] = (
    ("4o-mini", _Tiles(2_833, 5_667)),
    ("4.1-mini", _Squares(32, 1_536, tokens=1.62)),
    ("4.1-nano", _Squares(32, 1_536, tokens=2.46)),
    ("4", _Tiles(85, 170)),
    ("5-mini", _Squares(32, 1_536, tokens=1.2)),
    ("5-nano", _Squares(32, 1_536, tokens=1.5)),
    ("5.2", _Squares(32, 1_536, tokens=1.2)),
    ("5.3", _Squares(32, 1_536, tokens=1.2)),
    ("5.1", _Tiles(70, 140)),
    ("5.", _Squares(32, 2_500, tokens=1.2)),
    ("5", _Tiles(70, 140)),
    ("o4-mini", _Squares(32, 1_536, tokens=1.72)),
    ("codex-mini", _Squares(32, 1_536, tokens=1.72)),
    ("o", _Tiles(75, 150)),
    ("", _Squares(32, 2_500, tokens=1.2)),
)
"""OpenAI's models by the beginning of what follows `gpt-` in their names; the first one that fits counts."""


def image_tokens(model_id: str, size: ImageSize) -> int | None:
    """The tokens of an image of this size for a model; None if the formula is not known."""
    model = _model(model_id.lower())
    if model is None:
        return None
    if isinstance(model, _Tiles):
        fitted = _scaled(size, min(1.0, 2_048 / max(size)))
        fitted = _scaled(fitted, min(1.0, 768 / min(fitted)))
        return model.base + model.each * _squares(fitted, 512)
    return math.ceil(model.tokens * _squares(_seen(size, model), model.side))


def _model(model_id: str) -> _Squares | _Tiles | None:
    claude = _CLAUDE.search(model_id)
    if claude is not None or "claude" in model_id:
        version = tuple(int(part or 0) for part in claude.groups()) if claude is not None else ()
        return _NEW_CLAUDE if version >= _FIRST_NEW_CLAUDE else _OLD_CLAUDE
    gpt = _GPT.search(model_id)
    if gpt is None:
        return None
    return next(model for beginning, model in _BY_NAME if gpt[1].startswith(beginning))


def _seen(size: ImageSize, model: _Squares) -> tuple[float, float]:
    """The largest image of the same shape that a model takes."""
    high = min(1.0, model.longest / max(size))
    if _squares(_scaled(size, high), model.side) <= model.most:
        return _scaled(size, high)
    low = 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _squares(_scaled(size, middle), model.side) <= model.most:
            low = middle
        else:
            high = middle
    return _scaled(size, low)


def _scaled(size: tuple[float, float], scale: float) -> tuple[float, float]:
    return size[0] * scale, size[1] * scale


def _squares(size: tuple[float, float], side: int) -> int:
    """How many squares cover an image. What rounding adds to a side makes no further square."""
    return math.prod(max(1, math.ceil(round(pixels, 6) / side)) for pixels in size)
