"""What the user sees: the words that stand out, who did what, and whether all of it is right."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ledger import Recorded
from ledger.jobs import Job

Histories = Mapping[str, Sequence[Recorded]]


def say(text: str, code: int = 0) -> int:
    """Say something on the way, on standard error."""
    print(text, file=sys.stderr)
    return code


def tell(job: Job, total: Any, batches: Histories, killed: Sequence[str], wrong: Sequence[str]) -> None:
    """Tell the whole story."""
    console = Console()
    console.print(words(total["unusual"]))
    console.print(workers(batches))
    again = [nr for nr, history in batches.items() if sum(e.topic == "batch.started" for e in history) > 2]
    print(
        f"{len(batches)} batches of job {job.id}; claimed more than once a step: {', '.join(again) or 'none'}"
    )
    for whom in killed:
        print(f"killed: {whom}")
    for fault in wrong:
        print(f"WRONG: {fault}")
    if not wrong:
        print("every batch was written exactly once, and all of it is what one plain loop computes")


def words(found: Sequence[Mapping[str, Any]]) -> Table:
    """The words that stand out."""
    table = Table("word", "seen", "by chance", "deviations", title="words that stand out")
    for one in found:
        table.add_row(one["word"], str(one["seen"]), f"{one['by_chance']:.2f}", f"{one['score']:.1f}")
    return table


def workers(batches: Histories) -> Table:
    """What each worker began, and what it came to; it is all in the log."""
    table = Table("worker", "began", "computed", "written", "lost", title="who did what")
    did: dict[str, Counter[str]] = {}
    for history in batches.values():
        worker = ""
        for event in history:
            worker = getattr(event.event, "worker", None) or worker
            did.setdefault(worker, Counter())[event.topic.rpartition(".")[2]] += 1
    for worker, count in sorted(did.items()):
        if worker:
            lost = count["started"] - count["computed"] - count["completed"]
            cells = (count["started"], count["computed"], count["completed"], lost)
            table.add_row(worker, *map(str, cells))
    return table
