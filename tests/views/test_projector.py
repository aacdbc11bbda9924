"""The projector: batches that adapt, views whose code changed or that fail, statuses that come late."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import pytest

from ledger import BadInput, Body, DefinitionChanged, Ledger, ViewFailed
from ledger.domain.known import KNOWN
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from projections.engine.projector import LEAST, Projector, ViewFollower
from projections.views.in_state import InState
from tests.faults.conftest import eventually
from tests.lamp import LampMade, LampRead
from tests.views.lamps import lamps, states_by_hand
from tests.views.views_of_tests import ADD_WATTS, Declare, declare, watts, watts_by_hand

assert declare
assert InState
Connection = psycopg.Connection[Any]
IN_STATE = KNOWN.views["in_state"]


def fail_after(condition: Callable[[], object], error: Exception) -> NoReturn:
    eventually(condition)
    raise error


def leave_a_gap(log: Ledger, connection: Connection) -> None:
    """Take a position, and roll back."""
    with connection.transaction(force_rollback=True), log.join(connection) as joined:
        joined.append("lamp/gone", LampMade())


def states(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "SELECT stream, status, version, position FROM ledger_views.in_state ORDER BY stream"
    ).fetchall()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 7, 1, 30), (1000,)])
def test_where_batches_are_cut_makes_no_difference(
    log: Ledger, connection: Connection, declare: Declare, sizes: tuple[int, ...]
) -> None:
    view = declare()
    lamps(log, 12)
    lamps(log, 12)
    for size in sizes:
        projector = Projector(log, [view, IN_STATE], batch=size)
        projector.catch_up(projector.ledger.bound() // 2)
    assert Projector(log, [view, IN_STATE]).catch_up() == {
        name: log.bound() for name in ("watts", "in_state")
    }
    assert (watts(connection), states(connection)) == (watts_by_hand(connection), states_by_hand(log))


def test_it_comes_exactly_to_a_position(log: Ledger, connection: Connection, declare: Declare) -> None:
    view = declare()
    positions = [log.append("lamp/a", LampMade(watts=1)).last_position for _ in range(5)]
    leave_a_gap(log, connection)
    assert Projector(log, [view]).catch_up(positions[2]) == {"watts": positions[2]}
    assert watts(connection) == {"lamp/a": (3, 3)}
    assert Projector(log, [view]).catch_up(10**9) == {"watts": positions[-1]}


def test_batches_grow_while_it_is_behind_and_shrink_after(log: Ledger, declare: Declare) -> None:
    seen: list[int] = []

    def note(self: Any, batch: Any) -> list[Any]:
        seen.append(len(batch.events))
        return []

    view = declare(topics=None, apply=note)
    log.append("lamp/a", *[LampRead()] * (LEAST * 11))
    projector = Projector(log, [view], batch=LEAST * 4)
    projector.catch_up()
    assert seen == [LEAST, LEAST * 2, LEAST * 4, LEAST * 4]
    follower = ViewFollower.__new__(ViewFollower)
    follower.limit, follower.batch, follower.applied = LEAST * 4, LEAST * 4, 0
    for expected in (2, 1, 1):
        follower._moved(1, 3)
        assert follower.limit == LEAST * expected


def test_a_view_whose_code_changed_is_left_out_until_it_is_rebuilt(
    log: Ledger, connection: Connection, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    from projections.engine.rebuild import rebuild

    caplog.set_level(logging.CRITICAL)
    log.append("lamp/a", LampMade(watts=1))
    Projector(log, [declare()]).catch_up()
    changed = declare(statements=(ADD_WATTS.replace("count(*)", "count(*) + 100"),))
    with pytest.raises(DefinitionChanged, match="pledger rebuild watts"):
        Projector(log, [changed]).catch_up()
    with Projector(log, [changed, IN_STATE], again=0.05) as projector:
        log.append("lamp/b", LampMade(watts=2))
        assert projector.wait_for(log.bound())
        assert isinstance(projector.stopped["watts"], DefinitionChanged)
        assert watts(connection) == {"lamp/a": (1, 1)}
        rebuild(log, changed)
        eventually(lambda: "watts" not in projector.stopped)
        log.append("lamp/c", LampMade(watts=3))
        assert projector.wait_for(log.bound())
    assert watts(connection) == {"lamp/a": (1, 101), "lamp/b": (2, 101), "lamp/c": (3, 101)}


def test_one_that_can_follow_nothing_ends(
    log: Ledger, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    log.append("lamp/a", LampMade(watts=1))
    view = declare(statements=("SELECT nonsense FROM {batch} b",))
    projector = Projector(log, [view])
    with pytest.raises(ViewFailed, match="nonsense"), projector:
        projector.wait_for(1)
    with pytest.raises(ViewFailed, match="nonsense"):
        projector.run()
    own = KeyError("of the body's own")
    with pytest.raises(KeyError) as raised, projector:
        fail_after(lambda: projector._failure, own)
    assert "The projector had failed as well: view watts fails" in "".join(raised.value.__notes__)


def test_one_object_runs_once_at_a_time(log: Ledger) -> None:
    with Projector(log, [IN_STATE]) as projector, pytest.raises(BadInput, match="is running already"):
        projector.__enter__()


def test_positions_that_nobody_took_are_not_waited_for(log: Ledger, connection: Connection) -> None:
    log.append("lamp/a", LampMade())
    leave_a_gap(log, connection)
    with Projector(log, [IN_STATE]) as projector:
        began = time.monotonic()
        assert projector.wait_for(log.bound())
        assert time.monotonic() - began < 25


def test_moves_that_are_declared_late_are_folded_in_while_writers_run(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            log.append(
                f"torch/{n % 5}", Body(f"torch.{('lit', 'out', 'seen')[n % 3]}", 1, '{"state": "glow"}')
            )
            log.append(f"lamp/{n % 5}", LampMade())

    writer = threading.Thread(target=write)
    with Projector(log, [IN_STATE], batch=5) as projector:
        writer.start()
        try:
            eventually(lambda: projector.positions.get("in_state", 0) > 40)
            assert "torch/0" not in {row[0] for row in states(connection)}
            announce_statuses(log, {"torch.lit": TopicStatus("lit")})
            here = log.bound()
            assert projector.wait_for(here + 20)
            announce_statuses(
                log,
                {
                    "torch.out": TopicStatus("out"),
                    "torch.seen": TopicStatus(field="state"),
                    "torch.lit": TopicStatus("on"),
                },
            )
            assert projector.wait_for(log.bound() + 20)
        finally:
            stop.set()
            writer.join()
        assert projector.wait_for(log.bound())
    told = {"torch.lit": "on", "torch.out": "out", "torch.seen": "glow", "lamp.made": "made"}
    rows = connection.execute(
        "SELECT DISTINCT ON (stream) stream, topic, version, position FROM ledger.events "
        "ORDER BY stream, version DESC"
    ).fetchall()
    assert states(connection) == [(stream, told[topic], version, at) for stream, topic, version, at in rows]


COUNTED = (
    "INSERT INTO {watts} AS w SELECT m.status, count(*) "
    "FROM {batch} b JOIN {ledger}.topic_statuses m USING (topic) "
    "GROUP BY 1 ON CONFLICT (status) DO UPDATE SET many = w.many + excluded.many"
)


def test_a_view_that_sums_cannot_learn_late(log: Ledger, declare: Declare) -> None:
    table = "CREATE TABLE {watts} (status text PRIMARY KEY, many bigint)"
    view = declare(topics=None, statuses=True, tables=table, statements=(COUNTED,))
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    Projector(log, [view]).catch_up()
    announce_statuses(log, {"torch.dropped": TopicStatus("dropped")})
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    assert Projector(log, [view]).catch_up() == {"watts": 2}
    announce_statuses(log, {"torch.lit": TopicStatus("lit")})
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    with pytest.raises(ViewFailed, match="statuses of torch/a were announced after its events"):
        Projector(log, [view]).catch_up()
