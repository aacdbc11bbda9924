"""What is shown of a run of a build: its progress as it happens, and a row for each stage."""

from __future__ import annotations

from collections import Counter
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

from consumers.builds import progress

from ..output import Column, is_terminal, titled
from ..session import Session
from ..stderr import Progress
from .options import STATUSES, seconds

if TYPE_CHECKING:
    from ..stderr import Task

MANY: Final = 40
"""With more skipped stages than this, a terminal shows only the others."""


class Told:
    """What a run tells: progress and output of commands on stderr, a row for each stage at the end."""

    def __init__(self, session: Session, shown: Progress) -> None:
        self._session, self._shown = session, shown
        self._run = ""
        self._task: Task | None = None
        self._rows: list[dict[str, Any]] = []
        self._order: dict[str, int] = {}

    @singledispatchmethod
    def hear(self, event: object) -> None:
        """Take an event of the run."""

    @hear.register
    def _(self, event: progress.RunStarted) -> None:
        self._run, self._order = event.run, {stage: nth for nth, stage in enumerate(event.stages)}
        self._task = self._shown.task(f"build {event.project}", "stages")

    @hear.register
    def _(self, event: progress.StagesSkipped) -> None:
        for one in event.stages:
            self._add(one.stage, "skipped", one.reason, one.tier, 0)

    @hear.register
    def _(self, event: progress.StagePlanned) -> None:
        self._add(event.stage, "would run" if event.certain else "may run", event.reason, None, None)

    @hear.register
    def _(self, event: progress.StageWaiting) -> None:
        self._session.say(f"{event.stage}: waits for {event.holder}, which runs it")

    @hear.register
    def _(self, event: progress.StageStarted) -> None:
        last = "" if event.expected_ms is None else f" (last time {seconds(event.expected_ms)} s)"
        self._session.say(f"{event.stage}: runs, {event.reason}{last}")

    @hear.register
    def _(self, event: progress.StageOutput) -> None:
        for line in event.text.splitlines():
            self._session.say(f"{event.stage} | {line}")

    @hear.register
    def _(self, event: progress.StageEnded) -> None:
        if event.status == "failed":
            self._session.say(f"{event.stage}: failed, {event.reason}")
        self._add(event.stage, event.status, event.reason, None, event.duration_ms)

    def _add(self, stage: str, status: str, reason: str, tier: str | None, duration_ms: int | None) -> None:
        told = {"run": self._run, "stage": stage, "status": status, "tier": tier, "reason": reason}
        self._rows.append({**told, "duration_ms": duration_ms})
        if self._task is not None:
            self._task.update(len(self._rows), len(self._order))

    def print(self, ended: progress.RunEnded) -> None:
        """Print a row for each stage, in the order of the run, and a summary on stderr."""
        rows = sorted(self._rows, key=lambda row: self._order[row["stage"]])
        if (
            is_terminal()
            and not self._session.json
            and sum(row["status"] == "skipped" for row in rows) > MANY
        ):
            rows = [row for row in rows if row["status"] != "skipped"]
        columns = [*titled("stage", "status"), Column("seconds", number=True), Column("reason", keep=True)]
        self._session.print_rows(rows, columns, _row, styles=STATUSES)
        counts = Counter(row["status"] for row in self._rows)
        said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no stages"
        self._session.say(f"run {ended.run} {ended.status}: {said}, {seconds(ended.duration_ms)} s")


def _row(row: dict[str, Any]) -> list[Any]:
    return [row["stage"], row["status"], seconds(row["duration_ms"]), row["reason"]]
