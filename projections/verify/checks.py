"""What else can be compared with the events: a view, for one. `verify` runs each check after the heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ledger.store.ledger import Ledger

from ..folding import Which
from .difference import Difference


class Check(Protocol):
    """Compares one thing that is derived from the events with what the events come to.

    It raises no false alarm while others append: what it suspects it looks at again, kept and events in one
    snapshot, before it yields it. Differences are of `Kind.VIEW`, with `view` set to the check's name.
    """

    @property
    def name(self) -> str:
        """What it is called, such as the name of the view."""

    def differences(self, ledger: Ledger, which: Which, told: Callable[[int], None]) -> Iterable[Difference]:
        """What differs in the streams that are wanted. told: is given how many events were read since."""

    def mend(self, ledger: Ledger, difference: Difference) -> str | None:
        """Mend one of its differences: `mended`, `inserted`, `removed`, `busy`; None where it cannot."""
