"""Finds a machine's table in histories: which states occur, and which follow which often enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from ..errors import BadInput, shown
from .definition import Definition, Edge


def discover(
    histories: Iterable[Iterable[str]],
    *,
    initial: str | None = None,
    at_least: int = 1,
    share: float = 0.0,
) -> Definition:
    """The definition that histories follow. A history is the states of one object, in order.

    States are in the order of their first occurrence. A transition is declared if at least `at_least`
    histories have it, and at least this `share` of all histories (0 to 1); a history counts once. initial:
    the state that all begin in, by default the most frequent first state. A history that begins in another
    state counts as moving there from the initial one. By default no history is refused. Raises InvalidState
    for a name that cannot be a state, BadInput.
    """
    _check(at_least, share)
    seen = _Frequencies(histories)
    first = initial if initial is not None else seen.commonest_first()
    if first is None:
        return Definition()
    found = Definition().with_state(first, initial=True) if first not in seen.states else Definition()
    for state in seen.states:
        found = found.with_state(state, initial=state == first)
    least = max(at_least, share * seen.histories)
    pairs = (pair for pair, histories_with in seen.counted(first) if histories_with >= least)
    return found.with_edges(*(Edge(*pair) for pair in pairs))


class _Frequencies:
    """Counts states and pairs in one pass over the histories, which may come from a file."""

    def __init__(self, histories: Iterable[Iterable[str]]) -> None:
        self.histories = 0
        self.states: dict[str, None] = {}
        self._with: Counter[tuple[str, str]] = Counter()
        self._firsts: Counter[str] = Counter()
        self._also: Counter[tuple[str, str]] = Counter()  # a history has the pair, and begins with its end
        for history in histories:
            states = _texts(history)
            if states:
                self._see(states)

    def _see(self, states: list[str]) -> None:
        self.histories += 1
        self.states.update(dict.fromkeys(states))
        self._firsts[states[0]] += 1
        pairs = list(dict.fromkeys(pairwise(states)))
        self._with.update(pairs)
        self._also.update(pair for pair in pairs if pair[1] == states[0])

    def commonest_first(self) -> str | None:
        """The state that most histories begin with; of equals the first one."""
        return max(self._firsts, key=lambda state: self._firsts[state], default=None)

    def counted(self, first: str) -> Iterator[tuple[tuple[str, str], int]]:
        """Each pair of states with the number of histories that have it, if all begin in `first`."""
        for state in self._firsts:
            if state != first:
                self._with[first, state] += self._firsts[state] - self._also[first, state]
        place = {state: nth for nth, state in enumerate([first, *self.states])}
        yield from sorted(self._with.items(), key=lambda item: (place[item[0][0]], place[item[0][1]]))


def _texts(history: Iterable[str]) -> list[str]:
    given: Any = history
    if isinstance(given, str):
        raise BadInput(f"a history is the states of one object in their order, not the text {shown(history)}")
    return [str(state) for state in history]


def _check(at_least: int, share: float) -> None:
    given: Any = at_least
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"at_least {shown(at_least)} must be a number of histories, 1 or more")
    if not 0 <= share <= 1:
        raise BadInput(f"share {shown(share)} must be a part of the histories, from 0 to 1")


__all__ = ["discover"]
