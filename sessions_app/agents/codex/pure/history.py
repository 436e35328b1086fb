"""The items of a thread as its lines are read: which are in the conversation now, and which of them an item repeats.

Everything is kept as JSON values in the dictionary of a `ParserState`, so that reading continues where it ended. Items
are named by their places in the order of recording.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import canonical

from .records import COMPACTED, without_metadata

_DIGEST_BYTES: Final = 12
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def digest_of(item: Mapping[str, Any]) -> str:
    """Identifies an item by everything but its metadata."""
    content = without_metadata(item)
    try:
        encoded = _encode(content)
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates and huge numbers.
        encoded = canonical(content).encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


class _EqualItems:
    """The places of equal items, in the order of recording, of which each is taken once."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._taken: set[int] = set()
        self._first = 0
        """All before this one are taken."""

    def take(self, place: int) -> int | None:
        """This place, if it is one of them and free."""
        at = bisect_left(self._places, place)
        is_free = self._places[at : at + 1] == [place] and place not in self._taken
        return self._took(place) if is_free else None

    def take_after(self, last: int) -> int | None:
        """The first free place after another one, or else the first free place."""
        while self._first < len(self._places) and self._places[self._first] in self._taken:
            self._first += 1
        start = max(self._first, bisect_right(self._places, last))
        places = map(self._places.__getitem__, range(start, len(self._places)))
        free = next((place for place in places if place not in self._taken), None)
        if free is None and self._first < len(self._places):
            free = self._places[self._first]
        return self._took(free) if free is not None else None

    def _took(self, place: int) -> int:
        self._taken.add(place)
        return place


class ItemHistory:
    """The items so far."""

    def __init__(self, extra: dict[str, Any]) -> None:
        self._extra = extra
        self._ids: list[str] = self._own("ids", [])
        self._by_digest: dict[str, list[int]] = self._own("by_digest", {})
        for digest, places in self._by_digest.items():
            self._by_digest[digest] = list(places)
        self._prompts: list[int] = self._own("prompts", [])
        self._summaries: list[int] = self._own("summaries", [])
        """Prompts that are Codex's own summaries. Its next summary leaves them out."""
        self._now: list[int] = self._own("now", [])

    def _own(self, name: str, empty: Any) -> Any:
        """A value of the dictionary, copied: its previous holder may read on from it."""
        empty = type(empty)(self._extra.get(name, empty))
        self._extra[name] = empty
        return empty

    def add(self, entry: Entry, item: Mapping[str, Any]) -> None:
        """Record the next item, at the end of the conversation."""
        self._now.append(self._record(entry, digest_of(item)))

    def replace(self, kept: Iterable[tuple[Entry, str] | int]) -> None:
        """Make these items the conversation: earlier ones by their places, new ones with their digests."""
        self._set_now([one if isinstance(one, int) else self._record(*one) for one in kept])

    def places_of(self, digests: Sequence[str], names: Sequence[object] = ()) -> list[int | None]:
        """For each digest of a sequence the earlier item that it repeats, None if there is none.

        Of several equal items the one with the id in `names` is taken, or else the next one in the order of recording;
        each only once.
        """
        known = {entry_id: place for place, entry_id in enumerate(self._ids)} if names else {}
        equal = {digest: _EqualItems(self._by_digest.get(digest, [])) for digest in digests}
        found: list[int | None] = []
        last = -1
        for digest, name in itertools.zip_longest(digests, names[: len(digests)]):
            named = known.get(name) if isinstance(name, str) else None
            # If the named item has another digest, this one is what remains of it.
            place = equal[digest].take(named) if named is not None else equal[digest].take_after(last)
            found.append(place)
            last = last if place is None else place
        return found

    def leave_out_of_summaries(self) -> None:
        """The last item is a summary in the words of Codex's own, which it knows again by them."""
        self._summaries.append(self._now[-1])

    def id_of(self, place: int) -> str:
        return self._ids[place]

    def roll_back(self, turns: int) -> list[str]:
        """Cut the conversation before the last prompts, as many as `turns`; gives the ids of what remains."""
        prompts = set(self._prompts)
        starts = [at for at, place in enumerate(self._now) if place in prompts]
        if turns > 0 and starts:
            self._set_now(self._now[: starts[max(0, len(starts) - turns)]])
        return [self._ids[place] for place in self._now]

    def prompts(self) -> list[int]:
        """The prompts in the conversation, without Codex's own summaries."""
        prompts = set(self._prompts) - set(self._summaries)
        return [place for place in self._now if place in prompts]

    def _record(self, entry: Entry, digest: str) -> int:
        place = len(self._ids)
        self._ids.append(entry.id)
        self._by_digest.setdefault(digest, []).append(place)
        # A summary of a line without items is a message of the user for Codex.
        if entry.role == Role.USER or entry.type == COMPACTED:
            self._prompts.append(place)
        return place

    def _set_now(self, places: list[int]) -> None:
        self._now[:] = places
