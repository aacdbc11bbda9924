"""`pledger rebuild heads commands`: what appends keep themselves is set right where it is."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from .printing import Column, json_line, table
from .progress import board
from .session import Session

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.verify import Summary

KEPT: Final = ("heads", "commands")
"""What else than views can be rebuilt (projections/views/view.py keeps views from having these names)."""


def rebuild_kept(
    log: Ledger, names: Sequence[str], stream: str, category: str, jobs: int | None, session: Session
) -> None:
    """Set heads and command ids to what the events say, while others append; show what was changed."""
    session.know_domains()
    for name in names:
        began = monotonic()
        with board(session) as shown:
            summary = _rebuilt(log, name, stream, category, jobs, shown.work(name).at)
        _show(name, summary, monotonic() - began, session)


def _rebuilt(log: Ledger, name: str, stream: str, category: str, jobs: int | None, progress: Any) -> Summary:
    from projections.folding import Which
    from projections.verify import rebuild_commands, rebuild_heads

    if name == "commands":
        return rebuild_commands(log, processes=jobs, progress=progress)
    which = Which.of(stream or None, category or None)
    return rebuild_heads(log, which, processes=jobs, progress=progress)


def _show(name: str, summary: Summary, seconds: float, session: Session) -> None:
    changed = dict(sorted(summary.changed.items()))
    if session.json:
        told = {"events": summary.events, "streams": summary.streams, "seconds": seconds, "changed": changed}
        json_line({"view": name, **told})
        return
    rows = ", ".join(f"{many} {what}" for what, many in changed.items()) or "nothing changed"
    columns = [Column("kept"), Column("events", number=True), Column("events/s", number=True),
               Column("rows", keep=True)]  # fmt: skip
    row = (name, str(summary.events), f"{summary.events / max(seconds, 1e-9):.0f}", rows)
    table(columns, [row], color=session.color)
