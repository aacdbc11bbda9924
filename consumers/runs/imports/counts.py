"""How many rows an import took over, knew already, and left out, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Of a table. changed: runs that the ledger had, and that were in further states since. left: why not."""

    new: int = 0
    changed: int = 0
    known: int = 0
    left: list[str] = field(default_factory=list)

    def note(self, *, is_new: bool, is_changed: bool) -> None:
        """Count a run that was taken over, or that the ledger knew."""
        if is_new:
            self.new += 1
        elif is_changed:
            self.changed += 1
        else:
            self.known += 1

    def leave(self, what: str, why: Exception) -> None:
        """Note that a row is left out."""
        self.left.append(f"{what}: {why}")

    def __iadd__(self, other: Counts) -> Counts:
        self.new += other.new
        self.changed += other.changed
        self.known += other.known
        self.left += other.left
        return self

    @property
    def seen(self) -> int:
        """All rows."""
        return self.new + self.changed + self.known + len(self.left)
