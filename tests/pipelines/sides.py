"""
The two sides that a weakness is looked for on: the origin, and the ledger. Both offer the same few calls.

    @both
    def test_w0_20_two_ways_to_clear_a_flag(side: Side) -> None:
        ...
        holds(a == b, "set_x(False) does not cascade as reset_x() does")

`both` runs a check on either side: on the origin it must end in a Weak, which only `holds` raises, so that a
check cannot seem to fail there because it is itself wrong; on ours it must pass.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from consumers.pipelines import readiness
from gateway.cli.main import main
from ledger import NO_LOCKS, Event, Ledger, acting, split_name
from ledger.pipelines import (
    LSM,
    OCT,
    Ident,
    LSMChannelId,
    LSMStripId,
    OCTMosaicId,
    OCTSliceId,
    OCTStateService,
    ProjectStore,
    RunDecision,
    enter_flow_stage,
    enter_milestone_stage,
    flow_stage,
    milestone,
    slice_of_mosaic,
)
from tests.fork_server import python
from tests.pipelines.origin import TABLES, OriginStore
from tests.pipelines.origin_work import CHANNEL_READY, MOSAIC_READY, SLICE_REGISTERED, OriginWork

ROOT = Path(__file__).parents[2]
Milestone = Callable[[Callable[..., Any]], Callable[..., Any]]


class Weak(AssertionError):
    """The weakness showed."""


def holds(condition: object, weakness: str) -> None:
    """What a check is about. Raises Weak, which says what was seen instead."""
    if not condition:
        raise Weak(weakness)


class Side(Protocol):
    """What a check may use. lsm, oct: stores with open_item, read_item, peek_item. dsn: of the database."""

    lsm: Any
    oct: Any
    dsn: str

    def unlocked(self) -> Any: ...
    def free_locks(self) -> None: ...
    def footprint(self) -> object: ...
    def show(self, project: str) -> None: ...
    def reset_all(self, project: str) -> None: ...
    def fail(self, ident: Ident, reason: str, actor: str) -> None: ...
    def history(self, ident: Ident) -> list[tuple[str, str, str]]: ...
    def told(self) -> list[str]: ...
    def enter_flow(self, view: Any, ident: Ident, *, skip_if_running: bool = False) -> RunDecision: ...
    def enter_milestone(self, view: Any, ident: Ident, field: str) -> RunDecision: ...
    def milestone(self, field: str) -> Milestone: ...
    def process_strip(self, ident: LSMStripId) -> None: ...
    def compress_strip(self, ident: LSMStripId) -> None: ...
    def register_slice(self, ident: OCTSliceId) -> None: ...
    def child_done(self, ident: Ident) -> None: ...
    def announced(self, ident: Ident) -> int: ...
    def slices_of_mosaic(self, mosaic_id: int) -> set[int]: ...


class Origin(OriginWork):
    """The origin. Two strips make a channel, two batches a mosaic."""

    def unlocked(self) -> OriginStore:
        return OriginStore(self.dsn, "lsm", lock=False)

    def free_locks(self) -> None:
        self._rows("UPDATE concurrency_limit SET active_slots = 0 RETURNING 1")

    def footprint(self) -> object:
        return self._rows("SELECT project_name, xmin::text FROM project_state ORDER BY 1")

    def fail(self, ident: Ident, reason: str, actor: str) -> None:
        with self.lsm.open_item(ident) as item:
            item.mark_failed()

    def history(self, ident: Ident) -> list[tuple[str, str, str]]:
        """There is only the present, without a reason and without an actor."""
        return [(self.lsm.peek_item(ident).processing_state, "", "")]

    def told(self) -> list[str]:
        return [resource for name, resource in self._rows("SELECT * FROM emitted") if "fail" in name]

    def compress_strip(self, ident: LSMStripId, strips_per_slice: int = 2) -> None:
        super().compress_strip(ident, strips_per_slice)

    def child_done(self, ident: Ident) -> None:
        if isinstance(ident, LSMStripId):
            self.check_channel_ready(LSMChannelId(*ident.key[:3]), 2)  # type: ignore[arg-type]
        else:
            self.check_mosaic_ready(OCTMosaicId(*ident.key[:3]), 2)  # type: ignore[arg-type]

    def announced(self, ident: Ident) -> int:
        names = {LSMChannelId: CHANNEL_READY, OCTMosaicId: MOSAIC_READY, OCTSliceId: SLICE_REGISTERED}
        name = names[type(ident)]
        return len(self._rows("SELECT 1 FROM emitted WHERE name = %s AND resource = %s", name, str(ident)))

    def slices_of_mosaic(self, mosaic_id: int) -> set[int]:
        return {self.slice_of_mosaic_in_service(mosaic_id), self.slice_of_mosaic_in_flows(mosaic_id)}

    def _rows(self, statement: Any, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()


class Ours:
    """The ledger, with the same calls. crash: called where a process is killed."""

    def __init__(self, log: Ledger, dsn: str, crash: Callable[[], None] = lambda: None) -> None:
        self.log, self.dsn, self.crash = log, dsn, crash
        self.lsm, self.oct = ProjectStore(LSM, log), ProjectStore(OCT, log)
        self.failures: list[str] = []

    def unlocked(self) -> ProjectStore:
        return ProjectStore(LSM, self.log, locks=NO_LOCKS)

    def free_locks(self) -> None:
        """End the sessions that hold the scopes, as a broken network does."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'pledger scope%'"
            ).fetchall()
        assert ended

    def footprint(self) -> object:
        return [(event.stream, event.version) for event in self.log.log(0, self.log.bound())]

    def show(self, project: str) -> None:
        main(["--dsn", self.dsn, "lsm", "show", project])

    def reset_all(self, project: str) -> None:
        if main(["--dsn", self.dsn, "lsm", "reset", project, "--all", "--yes"]):
            raise ValueError("refused")

    def fail(self, ident: Ident, reason: str, actor: str) -> None:
        with acting(actor=actor), self.lsm.open_item(ident) as item:
            item.mark_failed(reason)

    def history(self, ident: Ident) -> list[tuple[str, str, str]]:
        name = LSM[len(ident.key) - 1].name_of(*ident.key)
        events = [(each, each.event) for each in self.log.read(name)]
        return [
            (str(fact.to), str(getattr(fact, "reason", "")), str(each.meta.actor))
            for each, fact in events
            if isinstance(fact, Event) and fact.to is not None
        ]

    def told(self) -> list[str]:
        """What whoever follows the log hears of work that ended without success."""
        events = self.log.log(0, self.log.bound())
        return [each.data for each in events if each.topic.endswith((".failed", ".left")) and each.data]

    def enter_flow(self, view: Any, ident: Ident, *, skip_if_running: bool = False) -> RunDecision:
        return enter_flow_stage(self._of(ident), ident, skip_if_running=skip_if_running).decision

    def enter_milestone(self, view: Any, ident: Ident, field: str) -> RunDecision:
        return enter_milestone_stage(self._of(ident), ident, field).decision

    def milestone(self, field: str) -> Milestone:
        return lambda function: lambda *, ident: milestone(self._of(ident), field)(function)(ident=ident)

    def process_strip(self, ident: LSMStripId) -> None:
        with flow_stage(self.lsm, ident):
            raise RuntimeError("Strip folder is too small")

    def compress_strip(self, ident: LSMStripId) -> None:
        with self.lsm.open_item(ident) as strip:
            strip.set_compressed()
        self.crash()

    def register_slice(self, ident: OCTSliceId) -> None:
        with self.oct.open_item(ident) as item:
            item.mark_completed()
            item.set_registered()
            self.crash()

    def child_done(self, ident: Ident) -> None:
        """Nobody has to look: who follows the log sees it."""

    def announced(self, ident: Ident) -> int:
        readiness(self.log, strips_per_slice=2, batches_per_mosaic=2).catch_up()
        topic = {LSMChannelId: "lsm.channel.ready", OCTMosaicId: "psoct.mosaic.ready"}.get(type(ident))
        seen = [
            each for each in self.log.log(0, self.log.bound()) if _key(each.stream) == [*map(str, ident.key)]
        ]
        return sum(each.topic == (topic or "psoct.slice.registered") for each in seen)

    def slices_of_mosaic(self, mosaic_id: int) -> set[int]:
        with OCTStateService(self.log).open_mosaic_by_parts("p", mosaic_id=mosaic_id) as mosaic:
            return {mosaic.slice_id, slice_of_mosaic(mosaic_id)}

    def _of(self, ident: Ident) -> ProjectStore:
        return self.lsm if type(ident).__name__.startswith("LSM") else self.oct


def _key(stream: str) -> list[str]:
    return [*split_name(stream)[1]]


def both(check: Callable[[Side], None]) -> Callable[..., None]:
    """A check as a test: the origin must show the weakness, ours must not."""

    @pytest.mark.parametrize("which", ["origin", "ours"])
    def test(which: str, log: Ledger, dsn: str, connection: psycopg.Connection[Any]) -> None:
        if which == "ours":
            return check(Ours(log, dsn))
        connection.execute(TABLES)
        with pytest.raises(Weak) as shown:
            check(Origin(dsn))
        assert str(shown.value)
        return None

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


@contextmanager
def doomed(side: Side, deed: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that does a deed on this side (doomed.py); killed at the end, if not before."""
    command = [*python(), "-m", "tests.pipelines.doomed", type(side).__name__, side.dsn, deed]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()
