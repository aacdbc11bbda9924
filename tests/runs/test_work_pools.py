"""Work pools: queues with priorities, and workers that are online while their heartbeats arrive."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadRecord, Ledger, RecordExists, RecordNotFound, RecordProtected
from ledger.runs.leases import LeaseKind
from ledger.runs.work_pools import WorkPools, first_free, moved_priorities

_numbers = count(1)


@pytest.fixture
def pools(shared: Ledger) -> WorkPools:
    return WorkPools(shared)


@pytest.fixture
def pool(pools: WorkPools) -> str:
    """The name of a pool of type process."""
    name = f"pool-{next(_numbers)}"
    pools.create({"name": name, "type": "process"})
    return name


def priorities(pools: WorkPools, pool: str) -> dict[str, int]:
    return {queue["name"]: queue["priority"] for queue in pools.queues(pool)}


def test_a_pool_is_made_with_its_default_queue_in_one_append(pools: WorkPools, pool: str) -> None:
    made = pools.get(pool)
    (queue,) = pools.queues(pool)
    assert (queue.id, queue["name"], queue["priority"]) == (made["default_queue_id"], "default", 1)
    assert made["status"] == "NOT_READY"
    (event,) = pools.ledger.read(f"work_pool/{made.id}")
    assert len(pools.ledger.recorded_with(event)) == 4
    with pytest.raises(RecordExists):
        pools.create({"name": pool, "type": "process"})
    with pytest.raises(RecordProtected, match="is the default queue"):
        pools.delete_queue(queue.id)


def test_reserved_names_are_protected(pools: WorkPools) -> None:
    with pytest.raises(RecordProtected):
        pools.create({"name": "Prefect-own", "type": "process"})
    with pytest.raises(RecordProtected):
        pools.change("prefect-own", {"description": "mine"})
    with pytest.raises(RecordNotFound):
        pools.change("prefect-own", {"is_paused": True})
    with pytest.raises(RecordProtected):
        pools.delete("prefect-own")


@pytest.mark.parametrize(
    ("base", "wrong"),
    [
        ({"variables": {"properties": {}}}, "both"),
        (
            {"job_configuration": {"command": "{{ command }}"}, "variables": {"properties": {"x": {}}}},
            "command",
        ),
    ],
)
def test_a_template_that_uses_undeclared_variables_is_refused(
    pools: WorkPools, base: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(BadRecord, match=wrong):
        pools.create({"name": "never", "type": "process", "base_job_template": base})


def test_a_queue_takes_the_first_free_priority_and_a_taken_one_moves_the_others(
    pools: WorkPools, pool: str
) -> None:
    for name in ("a", "b"):
        pools.create_queue(pool, {"name": name})
    assert priorities(pools, pool) == {"default": 1, "a": 2, "b": 3}
    pools.create_queue(pool, {"name": "c", "priority": 2})
    assert priorities(pools, pool) == {"default": 1, "c": 2, "a": 3, "b": 4}
    pools.change_queue(pools.queue(pool, "b").id, {"priority": 1, "description": "first"})
    assert priorities(pools, pool) == {"b": 1, "default": 2, "c": 3, "a": 4}
    pools.delete_queue(pools.queue(pool, "c").id)
    assert priorities(pools, pool) == {"b": 1, "default": 2, "a": 4}
    pools.create_queue(pool, {"name": "d"})
    assert priorities(pools, pool)["d"] == 3
    with pytest.raises(BadRecord):
        pools.change_queue(pools.queue(pool, "d").id, {"priority": 0})


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 8), max_size=6), st.integers(1, 8))
def test_law_priorities_are_unique_and_the_others_keep_their_order(
    drawn: dict[str, int], wanted: int
) -> None:
    others = {id: 2 * n + drawn[id] for n, id in enumerate(sorted(drawn))}
    others = {id: p for n, (id, p) in enumerate(others.items()) if p not in [*others.values()][:n]}
    after = {**others, **moved_priorities(others, {"new": wanted})}
    assert after["new"] == wanted
    assert len({*after.values()}) == len(after)
    assert sorted(others, key=others.__getitem__) == [
        id for id in sorted(after, key=after.__getitem__) if id != "new"
    ]
    assert all(after[id] >= before for id, before in others.items())
    assert first_free(others.values()) not in others.values()


def test_a_queue_is_found_or_made_by_its_name(pools: WorkPools, pool: str) -> None:
    made = pools.queue_of(pool, "fast")
    assert pools.queue_of(pool, "fast") == made
    assert pools.queue_of(pool, None)["name"] == "default"


def test_a_queue_that_several_make_at_once_is_one(pools: WorkPools, pool: str) -> None:
    start, found = threading.Barrier(3), list[str]()

    def make() -> None:
        start.wait()
        found.append(pools.queue_of(pool, "fast").id)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len({*found})) == (3, 1)


def test_a_deleted_pool_takes_its_queues_and_workers_with_it(pools: WorkPools, pool: str) -> None:
    pools.heartbeat(pool, "one")
    id, queue = pools.get(pool).id, pools.queues(pool)[0].id
    pools.delete(pool)
    with pytest.raises(RecordNotFound):
        pools.get(pool)
    with pytest.raises(RecordNotFound):
        pools.records.get("work_queue", queue)
    assert pools.records.below("worker", id) == []
    pools.create({"name": pool, "type": "process"})
    assert pools.workers(pool) == []


def test_heartbeats_record_only_what_changes(pools: WorkPools, pool: str) -> None:
    first = pools.heartbeat(pool, "one", 10)
    assert pools.get(pool)["status"] == "READY"
    version = pools.get(pool).version
    assert pools.heartbeat(pool, "one", 10) == first
    assert pools.get(pool).version == version
    (shown,) = pools.workers(pool)
    assert (shown["status"], shown["heartbeat_interval_seconds"]) == ("ONLINE", 10)
    assert shown["last_heartbeat_time"] > shown["created"]
    lease = pools.leases.get(LeaseKind.WORKER, first.id)
    assert lease is not None
    assert lease.seconds == 30


def test_a_pool_is_not_ready_when_its_last_worker_went_offline(pools: WorkPools, pool: str) -> None:
    one, two = (pools.heartbeat(pool, name) for name in ("one", "two"))
    pools.went_offline(one.id)
    assert pools.records.get("worker", one.id)["status"] == "ONLINE"  # its lease lasts
    for worker, pool_status in ((one, "READY"), (two, "NOT_READY")):
        pools.leases.release(LeaseKind.WORKER, worker.id)
        pools.went_offline(worker.id)
        assert pools.records.get("worker", worker.id)["status"] == "OFFLINE"
        assert pools.get(pool)["status"] == pool_status
    assert {shown["status"] for shown in pools.workers(pool)} == {"OFFLINE"}
    pools.heartbeat(pool, "one")
    assert pools.get(pool)["status"] == "READY"


def test_pausing_and_resuming_change_the_status(pools: WorkPools, pool: str) -> None:
    assert pools.change(pool, {"is_paused": True})["status"] == "PAUSED"
    assert pools.change(pool, {"is_paused": False})["status"] == "NOT_READY"
    pools.heartbeat(pool, "one")
    pools.change(pool, {"is_paused": True})
    assert pools.change(pool, {"is_paused": False})["status"] == "READY"
    (queue,) = pools.queues(pool)
    pools.polled([queue])
    assert pools.queue(pool, "default")["status"] == "READY"
    assert pools.change_queue(queue.id, {"is_paused": True})["status"] == "PAUSED"
    pools.queue_not_ready(queue.id)
    assert pools.change_queue(queue.id, {"is_paused": False})["status"] == "READY"
    pools.queue_not_ready(queue.id)
    assert pools.queue(pool, "default")["status"] == "NOT_READY"


def test_a_deleted_worker_comes_back_with_its_next_heartbeat(pools: WorkPools, pool: str) -> None:
    pools.heartbeat(pool, "one")
    pools.delete_worker(pool, "one")
    assert pools.workers(pool) == []
    pools.heartbeat(pool, "one")
    assert [shown["name"] for shown in pools.workers(pool)] == ["one"]
    with pytest.raises(RecordNotFound):
        pools.heartbeat("no such pool", "one")
