"""
Work pools, their queues, and the workers that poll them.

    pools = WorkPools(log)
    pools.create({"name": "local", "type": "process"})      # with the queue `default`
    pools.heartbeat("local", "worker 1", interval=30)

Heartbeats and polls renew leases (`ledger.runs.leases`) and are no events. What they change is: a worker that
comes online or goes offline, a queue or a pool that becomes READY or NOT_READY.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..errors import RecordExists, RecordNotFound, RecordProtected
from ..log.append import Append, Exact, append_of
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from .json_values import new_id, time_text
from .kinds import PoolStatus, WorkerStatus
from .leases import LeaseKind, RunLeases
from .records import OpenRecord, Record, Records, open_class

DEFAULT_QUEUE: Final = "default"
HEARTBEAT: Final = 30
"""Seconds between the heartbeats of a worker that does not tell its interval."""
MISSED: Final = 3
"""After so many intervals without a heartbeat a worker is offline."""
POLLED: Final = 60.0
"""Seconds after its last poll for which a queue or deployment is READY."""
_AGENT: Final = "prefect-agent"
"""The type of pools without workers, which have no status."""
_OF_RESERVED: Final = frozenset({"is_paused", "concurrency_limit"})
"""What may be changed of a pool with a reserved name."""


class WorkPools:
    """The work pools of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.records, self.leases = ledger, Records(ledger), RunLeases(ledger)

    # Pools

    def create(self, fields: Mapping[str, Any], *, id: str | None = None) -> Record:
        """Create a pool and its default queue, in one append.

        Raises BadRecord, RecordExists, RecordProtected for a name that begins with `prefect`.
        """
        _refuse_reserved(str(fields.get("name", "")))
        pool, queue = id or new_id(), new_id()
        first = {"name": DEFAULT_QUEUE, "description": "The work pool's default queue.", "priority": 1}
        status = None if fields.get("type", _AGENT) == _AGENT else _status(fields.get("is_paused"), set())
        streams = self.records.prepared("work_queue", {**first, "work_pool_id": pool}, id=queue)
        made = {**fields, "default_queue_id": queue, "status": status, **_now(status)}
        return self.records.create("work_pool", made, id=pool, also=[append_of(one) for one in streams])

    def get(self, name: str) -> Record:
        """The pool of this name. Raises RecordNotFound."""
        return self.records.named("work_pool", name)

    def change(self, name: str, fields: Mapping[str, Any]) -> Record:
        """Change a pool; pausing it changes its status. Raises BadRecord, RecordNotFound, RecordProtected."""
        if fields.keys() - _OF_RESERVED:
            _refuse_reserved(name)
        pool = self.get(name)

        def decide(opened: OpenRecord) -> None:
            given = dict(fields)
            before = opened.state.fields
            if given.get("is_paused") is not None and before["type"] != _AGENT:
                status = _status(given["is_paused"], self._online(pool.id))
                given |= {"status": status} | ({} if status == before["status"] else _now(status))
            opened.change(given)

        return self.records.decide("work_pool", pool.id, decide)

    def delete(self, name: str) -> None:
        """Delete a pool with its queues and workers. Raises RecordNotFound, RecordProtected."""
        _refuse_reserved(name)

        def attempt() -> None:
            pool = self.get(name)
            opened = [self.records.open("work_pool", pool.id)]
            for kind in ("work_queue", "worker"):
                ids = self.records.names.below(kind, pool.id).values()
                opened += self.ledger.load_each([open_class(kind)(id) for id in ids])
            there = [one for one in opened if one.is_present]
            names = [self.records.names.open(one.KIND.name, *(one.unique_name or ())) for one in there]
            for one, named in zip(there, names, strict=True):
                one.delete()
                named.free()
            self.ledger.commit(*there, *names)

        retry_conflicts(attempt)

    # Queues

    def queue(self, pool_name: str, name: str) -> Record:
        """The queue of this name in a pool. Raises RecordNotFound."""
        return self.records.named("work_queue", self.get(pool_name).id, name)

    def queues(self, pool_name: str) -> list[Record]:
        """The queues of a pool, the one with the highest priority (1) first. Raises RecordNotFound."""
        return _by_priority(self.records.below("work_queue", self.get(pool_name).id))

    def create_queue(self, pool_name: str, fields: Mapping[str, Any]) -> Record:
        """Create a queue. Without a priority it gets the first that is free; a taken one moves the others.

        Two that are created at the same moment may get one priority; then their names order them. Raises
        BadRecord, RecordExists, RecordNotFound.
        """
        pool = self.get(pool_name)

        def attempt() -> Record:
            others = {queue.id: queue["priority"] for queue in self.records.below("work_queue", pool.id)}
            id, given = new_id(), {**fields, "work_pool_id": pool.id}
            given["description"] = given.get("description") or ""
            if given.get("priority") is None:
                given["priority"] = first_free(others.values())
            streams = self.records.prepared("work_queue", given, id=id)
            moved = moved_priorities(others, {id: int(streams[0].state.fields["priority"])})
            also = self._appends_of(moved, except_for=id)
            return self.records.create("work_queue", given, id=id, also=also)

        return retry_conflicts(attempt)

    def queue_of(self, pool_name: str, name: str | None) -> Record:
        """The queue of this name, created where it is missing; without a name the pool's default queue.

        Raises BadRecord, RecordNotFound for the pool.
        """
        pool = self.get(pool_name)
        if name is None:
            return self.records.get("work_queue", str(pool["default_queue_id"]))
        try:
            return self.records.named("work_queue", pool.id, name)
        except RecordNotFound:
            pass
        try:
            return self.create_queue(pool_name, {"name": name})
        except RecordExists as taken:  # another process was first
            return self.records.get("work_queue", taken.id)

    def change_queue(self, id: str, fields: Mapping[str, Any]) -> Record:
        """Change a queue; a taken priority moves the others, pausing it changes its status.

        Raises BadRecord, RecordNotFound, RecordExists.
        """

        def attempt() -> Record:
            opened = self.records.open("work_queue", id)
            opened.require()
            before, given = opened.state.fields, dict(fields)
            if given.get("is_paused") is not None and before["status"] is not None:
                given["status"] = self._queue_status(id, before, given["is_paused"])
            also: list[Append] = []
            if given.get("priority") is not None and before["work_pool_id"] is not None:
                queues = self.records.below("work_queue", before["work_pool_id"])
                others = {queue.id: queue["priority"] for queue in queues if queue.id != id}
                opened.change({"priority": given["priority"]})  # refuses what is no priority
                also = self._appends_of(moved_priorities(others, {id: given["priority"]}), except_for=id)
            return self.records.decide(
                "work_queue", id, lambda one: one.change(given), expected=opened.version, also=also
            )

        return retry_conflicts(attempt)

    def delete_queue(self, id: str) -> None:
        """Delete a queue. Raises RecordNotFound, RecordProtected for the default queue of a pool."""
        queue = self.records.get("work_queue", id)
        pool = queue["work_pool_id"] and self.records.open("work_pool", queue["work_pool_id"])
        if pool and pool.is_present and pool.state.fields["default_queue_id"] == id:
            raise RecordProtected("work_queue", queue["name"], "is the default queue of its pool")
        self.records.delete("work_queue", id)

    def polled(self, queues: Iterable[Record]) -> None:
        """Note that somebody polled these queues: they are READY, unless they are paused."""
        for queue in queues:
            self.leases.renew(LeaseKind.WORK_QUEUE, queue.id, POLLED)
            if queue["status"] == PoolStatus.NOT_READY:
                self._set_status("work_queue", queue.id, PoolStatus.NOT_READY, PoolStatus.READY)

    def queue_not_ready(self, id: str, polled_at: datetime | None = None) -> None:
        """Note that nobody polled a queue since a time; nothing happens where it is paused or deleted."""
        self._set_status("work_queue", id, PoolStatus.READY, PoolStatus.NOT_READY, last_polled=polled_at)

    def _queue_status(self, id: str, before: Mapping[str, Any], paused: bool) -> str:
        if paused:
            return PoolStatus.PAUSED
        if before["status"] != PoolStatus.PAUSED:
            return str(before["status"])
        return PoolStatus.READY if self.leases.lasting(LeaseKind.WORK_QUEUE, [id]) else PoolStatus.NOT_READY

    def _set_status(self, kind: str, id: str, old: str, new: str, **more: Any) -> None:
        def attempt() -> None:
            opened = self.records.open(kind, id)
            if opened.is_present and opened.state.fields["status"] == old:
                opened.change({"status": new, **(_now(new) if kind == "work_pool" else {}), **more})
                self.ledger.commit(opened)

        retry_conflicts(attempt)

    def _appends_of(self, priorities: Mapping[str, int], *, except_for: str) -> list[Append]:
        changes = [
            self.records.append_of_change("work_queue", id, {"priority": priority})
            for id, priority in priorities.items()
            if id != except_for
        ]
        return [change for change in changes if change is not None]

    # Workers

    def heartbeat(self, pool_name: str, worker_name: str, interval: int | None = None) -> Record:
        """Note a heartbeat of a worker, and create the worker at its first one.

        interval: seconds between its heartbeats. It is ONLINE until it misses three, and its pool is READY.
        Raises BadRecord, RecordNotFound for the pool.
        """
        pool = self.get(pool_name)
        fields: dict[str, Any] = {"name": worker_name, "work_pool_id": pool.id, "status": WorkerStatus.ONLINE}
        if interval is not None:
            fields["heartbeat_interval_seconds"] = interval
        worker, _ = self.records.upsert("worker", fields, keep=True)
        seconds = interval or worker["heartbeat_interval_seconds"] or HEARTBEAT
        self.leases.renew(LeaseKind.WORKER, worker.id, float(seconds * MISSED))
        if any(worker[name] != value for name, value in fields.items()):
            worker = self.records.change("worker", worker.id, fields)
        if pool["status"] == PoolStatus.NOT_READY:
            self._set_status("work_pool", pool.id, PoolStatus.NOT_READY, PoolStatus.READY)
        return worker

    def workers(self, pool_name: str) -> list[dict[str, Any]]:
        """The workers of a pool as they are shown, the last heartbeat first. Raises RecordNotFound."""
        return self.workers_shown(self.records.below("worker", self.get(pool_name).id))

    def workers_shown(self, workers: Iterable[Record]) -> list[dict[str, Any]]:
        """These workers with their last heartbeats; one whose lease ran out is shown OFFLINE at once."""
        leases = {lease.key: lease for lease in self.leases.all(LeaseKind.WORKER)}
        now, found = self.leases.clock(), []
        for worker in workers:
            shown, lease = worker.shown(), leases.get(worker.id)
            if lease is not None:
                shown["last_heartbeat_time"] = time_text(lease.renewed_at)
            if lease is None or lease.until < now:
                shown["status"] = WorkerStatus.OFFLINE.value
            found.append(shown)
        return sorted(found, key=lambda one: one["last_heartbeat_time"] or "", reverse=True)

    def delete_worker(self, pool_name: str, name: str) -> None:
        """Delete a worker; its next heartbeat creates it again. Raises RecordNotFound."""
        worker = self.records.named("worker", self.get(pool_name).id, name)
        self.leases.release(LeaseKind.WORKER, worker.id)
        self.records.delete("worker", worker.id)

    def went_offline(self, worker_id: str, seen_at: datetime | None = None) -> None:
        """Note that a worker missed its heartbeats; its pool is NOT_READY when no other is online.

        seen_at: when its last heartbeat came, which is shown from now on. Nothing happens where it is
        deleted, or sent a heartbeat meanwhile.
        """

        def attempt() -> None:
            opened = self.records.open("worker", worker_id)
            if not opened.is_present or self.leases.lasting(LeaseKind.WORKER, [worker_id]):
                return
            pool = self.records.open("work_pool", opened.state.fields["work_pool_id"])
            seen = {} if seen_at is None else {"last_heartbeat_time": seen_at}
            opened.change({"status": WorkerStatus.OFFLINE, **seen})
            online = self._online(pool.id, except_for=worker_id)
            if pool.is_present and pool.state.fields["status"] == PoolStatus.READY and not online:
                pool.change({"status": PoolStatus.NOT_READY, **_now(PoolStatus.NOT_READY)})
            checks = [] if pool.news else [Append(pool.name, [], Exact(pool.version))]
            self.ledger.commit(opened, pool, checks=checks)

        retry_conflicts(attempt)

    def _online(self, pool_id: str, *, except_for: str = "") -> set[str]:
        """The ids of a pool's workers that are online."""
        workers = self.records.below("worker", pool_id)
        return {
            worker.id
            for worker in workers
            if worker["status"] == WorkerStatus.ONLINE and worker.id != except_for
        }


def first_free(taken: Iterable[int]) -> int:
    """The highest priority (the smallest number) that no queue has."""
    priority = 1
    for other in sorted(taken):
        if other > priority:
            break
        priority = other + 1
    return priority


def moved_priorities(others: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    """The priorities of a pool's queues that change when some get given ones, with those themselves.

    The others keep their order and move down only as far as needed, so that no two are equal.
    """
    queues = sorted(others, key=lambda id: (others[id], id))
    for id in sorted(given, key=lambda id: given[id]):
        place = next((n for n, other in enumerate(queues) if others.get(other, 0) >= given[id]), len(queues))
        queues.insert(place, id)
    wanted, last, after = {**others, **given}, 0, {}
    for id in queues:
        last = max(wanted[id], last + 1)
        after[id] = last
    return {id: priority for id, priority in after.items() if priority != others.get(id)}


def _by_priority(queues: Collection[Record]) -> list[Record]:
    return sorted(queues, key=lambda queue: (queue["priority"], queue["name"]))


def _status(paused: object, online: Collection[str]) -> PoolStatus:
    if paused:
        return PoolStatus.PAUSED
    return PoolStatus.READY if online else PoolStatus.NOT_READY


def _now(status: object) -> dict[str, Any]:
    """What a pool notes of a new status: since when, and the id of the event that tells of it."""
    if status is None:
        return {}
    return {"last_transitioned_status_at": datetime.now(UTC), "last_status_event_id": new_id()}


def _refuse_reserved(name: str) -> None:
    if name.lower().startswith("prefect"):
        raise RecordProtected("work_pool", name, "is the server's own: its name begins with 'prefect'")
