"""The import as a whole: table by table, in pages; a second import records what is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ledger import Ledger
from ledger.log.recorded import acting
from ledger.runs.run_logs import RunLogs

from .counts import Counts
from .database import PrefectDatabase, Row
from .records import KINDS, RecordImport
from .runs import AT_ONCE, RunImport

TABLES: Final = (
    "flow", "block_type", "block_schema", "block_document", "concurrency_limit_v2", "concurrency_limit",
    "work_pool", "work_queue", "deployment", "variable", "automation", "saved_search", "flow_run", "task_run",
    "artifact", "log",
)  # fmt: skip
"""The tables that are taken over, in this order: what others refer to comes first."""
LEFT: Final = {
    "worker": "workers: they come again by themselves",
    "agent": "agents",
    "task_run_state_cache": "cached results of tasks",
    "events": "events: those of runs follow from their states, the rest is left out",
}
"""Tables that are left out, and what is said of them."""
LOGS: Final = 1000
"""Logs that are written at once."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is. table: the present one; done, total: rows of all tables; seconds: so far."""

    table: str
    done: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second so far."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None while that cannot be told."""
        return (self.total - self.done) / self.rate if self.rate else None


@dataclass(slots=True)
class Report:
    """What an import did. tables: the counts of each table; left_out: what it does not take at all."""

    tables: dict[str, Counts] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def total(self) -> Counts:
        """The counts of all tables."""
        whole = Counts()
        for counts in self.tables.values():
            whole += counts
        return whole


class Import:
    """Takes the contents of a Prefect database over into a ledger.

    A page of runs is one transaction, and so is each other record. An import that was killed goes on when it
    is started again: what the ledger has is left as it is.
    """

    def __init__(self, ledger: Ledger, database: PrefectDatabase) -> None:
        self.ledger, self.database = ledger, database
        self._records = RecordImport(ledger, database)
        self._runs = RunImport(ledger, database, self._records)

    def run(
        self, tell: Callable[[Progress], None] = lambda progress: None, stop: threading.Event | None = None
    ) -> Report:
        """Take everything over; ends after a page once `stop` is set. tell: called after each page.

        Raises BadFile for what is no database of Prefect's, ServerUnavailable, BadKey for the keys of blocks.
        """
        self.database.check()
        totals = {table: self.database.count(table) for table in TABLES}
        total, done, began, report = sum(totals.values()), 0, time.monotonic(), Report()
        report.left_out += [f"{many} {LEFT[name]}" for name in LEFT if (many := self.database.count(name))]
        with acting(correlation=f"import of {self.database.name}"):
            for table in TABLES:
                take, size = self._taker(table)
                counts = report.tables[table] = Counts()
                # The collection of a key has the artifact that came last.
                for rows in self.database.pages(table, size, by_age=table == "artifact"):
                    counts += take(rows)
                    done += len(rows)
                    tell(Progress(table, done, total, time.monotonic() - began))
                    if stop is not None and stop.is_set():
                        return report
        return report

    def _taker(self, table: str) -> tuple[Callable[[Sequence[Row]], Counts], int]:
        """What takes a page of a table over, and how many rows a page has."""
        match table:
            case "flow_run":
                return self._runs.take_flow_runs, AT_ONCE
            case "task_run":
                return self._runs.take_task_runs, AT_ONCE
            case "log":
                return self._take_logs, LOGS
        assert table in KINDS
        # Blocks come in one page: some refer to others.
        return partial(self._records.take, table), 10_000 if table == "block_document" else 200

    def _take_logs(self, rows: Sequence[Row]) -> Counts:
        new = RunLogs(self.ledger).write_once(rows)
        return Counts(new=new, known=len(rows) - new)
