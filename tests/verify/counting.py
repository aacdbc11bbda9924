"""Work for processes of a fold, in a module that they import quickly: nothing of pytest or Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger import BadInput, ServerUnavailable


@dataclass
class Counting:
    """Work that counts characters, and can fail or end its process."""

    kind: str = "count"

    def open(self) -> None:
        if self.kind == "unopened":
            raise ServerUnavailable("no such place")

    def close(self) -> None:
        pass

    def __call__(self, piece: str, told: Callable[[int], None]) -> int:
        told(len(piece))
        if self.kind == "fail":
            raise BadInput(f"{piece} is no piece")
        if self.kind == "die" or (self.kind == "die once" and piece == "b"):
            marker = Path(os.environ["MARKER"])
            if self.kind == "die" or not marker.exists():
                marker.touch()
                os.kill(os.getpid(), 9)
        return len(piece)
