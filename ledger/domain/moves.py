"""A state machine as a table: which status may follow which, None being the start."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import MoveNotAllowed


@dataclass(frozen=True)
class Moves:
    """The transitions of a stream's statuses, checked when an event is recorded, not when it is replayed."""

    table: Mapping[Any, Set[StrEnum]]

    def check(self, old: str | None, new: StrEnum) -> None:
        """Raise MoveNotAllowed unless `new` may follow `old`."""
        if new not in self.table.get(old, ()):
            raise MoveNotAllowed(old, new, self.table.get(old, ()))

    def ends(self, status: str | None) -> bool:
        """Whether nothing may follow `status`."""
        return not self.table.get(status)
