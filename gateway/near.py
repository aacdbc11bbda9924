"""Names near a name that nothing is recorded under: what the caller may have meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger import Ledger

SAMPLE = 1000
"""Names that are looked at: a suggestion is worth one query, not a walk through the ledger."""


def near(log: Ledger, stream: str) -> list[str]:
    """Up to three stream names that are like this one, the most alike first."""
    parts = stream.split("/")
    for kept in range(len(parts) - 1, -1, -1):
        prefix = "".join(f"{part}/" for part in parts[:kept])
        names = [info.stream for info in log.streams(prefix, limit=SAMPLE)]
        if found := get_close_matches(stream, names, n=3, cutoff=0.6):
            return found
    return []
