"""Objects whose callbacks do what a test tells them to, once; and what comes of an act, in a word."""

from __future__ import annotations

from collections.abc import Callable

from ledger import LedgerError
from tests.machines.oracle import MOVED


class Wrong(Exception):
    """What goes wrong in a transaction of the user's."""


class Thing:
    """An object; what `meanwhile` does happens once, after its next move is decided; `then`, in `after`."""

    def __init__(self, key: str) -> None:
        self.id, self.committed = key, list[str]()
        self.meanwhile: Callable[[], object] | None = None
        self.then: Callable[[], object] | None = None

    def moved(self) -> None:
        act, self.then = self.then, None
        if act is not None:
            act()

    def decided(self) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return True


def outcome(act: Callable[[], object]) -> str:
    """What comes of it: the name of the ledger's error, or whether there was a move."""
    try:
        return "ok" if (done := act()) is None else MOVED if done else "not moved"
    except LedgerError as error:
        return type(error).__name__
