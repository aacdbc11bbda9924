"""What machines should do, in plain lists and sets: nothing of `ledger.machines` is used here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

OK, UNKNOWN, IMPOSSIBLE = "ok", "InvalidState", "InvalidTransition"
MOVED, FAILED, REFUSED, BEATEN = "moved", "TransitionFailed", "GuardRefused", "TransitionConflict"

Past = list[tuple[str | None, str, int]]
"""The moves of an object: from, to, and the number that was said with it."""


@dataclass
class Ask:
    """A guard: the number that is said must be at least this."""

    from_state: str | None
    to_states: tuple[str, ...]
    least: int

    def is_for(self, old: str, new: str) -> bool:
        return self.from_state in (None, old) and (not self.to_states or new in self.to_states)


@dataclass
class Table:
    """A definition: what may be said of it, and what comes of that."""

    states: list[str] = field(default_factory=list)
    initial: str | None = None
    edges: list[tuple[str, str]] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)

    def add_state(self, name: str, initial: bool) -> str:
        if initial and self.initial not in (None, name):
            return UNKNOWN
        if name not in self.states:
            self.states.append(name)
        if initial:
            self.initial = name
        return OK

    def add_edges(self, old: str, news: Sequence[str]) -> str:
        if not news or not {old, *news} <= set(self.states):
            return UNKNOWN
        self.edges += [(old, new) for new in dict.fromkeys(news) if (old, new) not in self.edges]
        return OK

    def remove_edges(self, old: str | None, news: Sequence[str]) -> str:
        if old is None and not news:
            return IMPOSSIBLE
        if not {*news, *([old] if old else [])} <= set(self.states):
            return UNKNOWN
        self.edges = [(a, b) for a, b in self.edges if not (old in (None, a) and (not news or b in news))]
        return OK

    def remove_state(self, name: str) -> str:
        if name not in self.states:
            return UNKNOWN
        self.states.remove(name)
        self.edges = [edge for edge in self.edges if name not in edge]
        self.initial = None if self.initial == name else self.initial
        self.asks = [ask for ask in self.asks if ask.from_state != name and ask.to_states != (name,)]
        for ask in self.asks:
            ask.to_states = tuple(state for state in ask.to_states if state != name)
        return OK

    def add_ask(self, old: str | None, news: Sequence[str], least: int) -> str:
        if not {*news, *([old] if old else [])} <= set(self.states):
            return UNKNOWN
        leads = [edge for edge in self.edges if old in (None, edge[0])]
        if old is not None and not leads:
            return IMPOSSIBLE
        if not set(news) <= {b for _, b in leads}:
            return IMPOSSIBLE
        self.asks.append(Ask(old, tuple(news), least))
        return OK

    # Moving

    def state(self, past: Past) -> str | None:
        return past[-1][1] if past else self.initial

    def leads(self, past: Past, new: str) -> bool:
        return (self.state(past), new) in self.edges

    def passes(self, past: Past, new: str, number: int) -> bool:
        old = self.state(past)
        assert old is not None
        return all(number >= ask.least for ask in self.asks if ask.is_for(old, new))

    def answer(self, past: Past, new: str, number: int) -> str:
        if new not in self.states:
            return UNKNOWN
        if not self.leads(past, new):
            return FAILED
        return MOVED if self.passes(past, new, number) else REFUSED

    def move(self, past: Past, new: str, number: int) -> str:
        """Move, if that is allowed; what comes of it."""
        answer = self.answer(past, new, number)
        if answer == MOVED:
            past.append((self.state(past), new, number))
        return answer

    def allowed(self, past: Past, number: int) -> list[str]:
        ways = [new for old, new in self.edges if old == self.state(past)]
        return [new for new in ways if self.passes(past, new, number)]
