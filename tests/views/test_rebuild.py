"""Rebuilding a view beside the live one: compared, switched, continued, refused, and rolled back."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import BadInput, BeingBuilt, DefinitionChanged, Ledger, ViewFailed, ViewsDiffer
from ledger.domain.known import KNOWN
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.rebuild import Building, rebuild, roll_back
from projections.engine.refold import refold
from projections.engine.view import View
from tests.lamp import OpenLamp
from tests.views.lamps import copies, lamps, rows, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]


def test_a_rebuilt_view_equals_the_live_one_and_is_what_readers_see(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 50)
    Projector(log, [IN_STATE]).catch_up()
    before = rows(connection)
    seen: list[Building] = []

    made = rebuild(log, IN_STATE, batch=7, progress=seen.append)

    assert (made.switched, made.differences, made.before, made.copy) == (True, (), 1, 2)
    assert rows(connection) == before == states_by_hand(log)
    assert [step.position for step in seen] == sorted(step.position for step in seen)
    assert seen[-1].position == seen[-1].end == log.bound()


def test_a_view_that_nobody_followed_is_built_from_nothing(log: Ledger, connection: Connection) -> None:
    lamps(log, 5)
    made = rebuild(log, IN_STATE)
    assert (made.before, made.switched) == (None, True)
    assert rows(connection) == states_by_hand(log)


def test_what_the_live_copy_had_wrong_is_shown_and_a_gate_refuses(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    connection.execute("SET ROLE ledger_projector")
    connection.execute("UPDATE ledger_views.in_state_1 SET status = 'broken' WHERE stream = 'lamp/3'")
    connection.execute("DELETE FROM ledger_views.in_state_1 WHERE stream = 'lamp/4'")

    with pytest.raises(
        ViewsDiffer, match=r"view in_state: 2 rows differ .* more than the 1 allowed"
    ) as caught:
        rebuild(log, IN_STATE, allowed=1)
    assert caught.value.rows == 2
    assert ("lamp/3", "broken") in [row[:2] for row in rows(connection)]

    made = rebuild(log, IN_STATE, allowed=2)
    (difference,) = made.differences
    assert made.continued  # with what the refused one had built
    assert (difference.table, difference.only_old, difference.only_new) == ("in_state", 1, 2)
    assert sorted(row["stream"] for row in difference.new) == ["lamp/3", "lamp/4"]
    assert rows(connection) == states_by_hand(log)


def test_a_dry_run_changes_nothing_and_leaves_nothing(log: Ledger, connection: Connection) -> None:
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    made = rebuild(log, IN_STATE, dry_run=True)
    assert not made.switched
    assert copies(connection) == ["in_state_1"]
    assert connection.execute("SELECT live, kept FROM ledger.views").fetchall() == [(1, None)]


def test_only_two_copies_are_kept(log: Ledger, connection: Connection) -> None:
    lamps(log, 2)
    for _ in range(4):
        rebuild(log, IN_STATE)
    assert copies(connection) == ["in_state_3", "in_state_4"]


def test_a_projector_goes_on_with_the_new_copy(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    with Projector(log, [IN_STATE]) as projector:
        assert projector.wait_for(log.bound())
        rebuild(log, IN_STATE)
        lamps(log, 6)
        assert projector.wait_for(log.bound())
    assert rows(connection) == states_by_hand(log)
    assert connection.execute("SELECT live FROM ledger.views").fetchone() == (2,)


def test_rolled_back_is_what_was_there_before_and_what_came_since(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 3)
    with pytest.raises(BadInput, match="has no earlier copy"):
        roll_back(log, IN_STATE)
    rebuild(log, IN_STATE)
    rebuild(log, IN_STATE)
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    made = roll_back(log, IN_STATE)
    assert (made.copy, made.before) == (1, 2)
    assert rows(connection) == states_by_hand(log)
    connection.execute("SET ROLE ledger_projector")
    connection.execute("UPDATE ledger.view_copies SET definition = 'other' WHERE copy = 2")
    with pytest.raises(DefinitionChanged, match="copy 2 of view in_state was built by another definition"):
        roll_back(log, IN_STATE)


def test_two_builders_cannot_meet(log: Ledger) -> None:
    lamps(log, 20)
    met: list[BaseException] = []

    def second(_: Building) -> None:
        with pytest.raises(BeingBuilt, match="another process is building view in_state") as caught:
            rebuild(log, IN_STATE)
        met.append(caught.value)

    rebuild(log, IN_STATE, progress=second)
    assert met


BUILD = """
import sys
from ledger import connect
import projections.views.in_state
from projections.engine.rebuild import rebuild
from ledger.domain.known import KNOWN
with connect(sys.argv[1], create=False) as log:
    rebuild(log, KNOWN.views["in_state"], batch=1, progress=lambda step: print(step.position, flush=True))
"""


def test_killed_at_any_moment_it_is_continued(log: Ledger, dsn: str, connection: Connection) -> None:
    lamps(log, 60)
    Projector(log, [IN_STATE]).catch_up()
    builder = subprocess.Popen([sys.executable, "-c", BUILD, dsn], stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    for line in builder.stdout:
        if int(line) >= 10:
            break
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    builder.stdout.close()

    made = _again(lambda: rebuild(log, IN_STATE))

    assert made.continued
    assert 0 < made.events < 120
    assert rows(connection) == states_by_hand(log)
    assert not made.differences


def _again(act: Callable[[], Any]) -> Any:
    """Until the server has seen that the killed builder is gone."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return act()
        except BeingBuilt:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture
def counted() -> Iterator[Callable[[str, int], View]]:
    """Declares a view `counted` again and again, as a later version of its code would."""

    def declare(columns: str, number: int) -> View:
        names = [part.split()[0] for part in columns.split(", ")]
        values = {"stream": "b.stream", "many": "count(*)", "last": "max(b.version)"}
        selected = ", ".join(values[name] for name in names)
        update = (
            ", ".join(f"{name} = excluded.{name}" for name in names if name != "stream")
            or "stream = c.stream"
        )
        body = {
            "name": "counted",
            "number": number,
            "tables": f"CREATE TABLE {{counted}} ({columns}, PRIMARY KEY (stream))",
            "statements": (
                f"INSERT INTO {{counted}} AS c SELECT {selected} FROM {{batch}} b GROUP BY b.stream "
                f"ON CONFLICT (stream) DO UPDATE SET {update}",
            ),
        }
        type("Counted", (View,), body)
        return KNOWN.views["counted"]

    yield declare
    KNOWN.views.pop("counted", None)


def test_another_definition_is_followed_only_after_a_rebuild(
    log: Ledger, connection: Connection, counted: Callable[[str, int], View]
) -> None:
    lamps(log, 3)
    first = counted("stream text, many bigint", 1)
    Projector(log, [first]).catch_up()
    second = counted("stream text, many bigint, last bigint", 2)
    projector = Projector(log, [second, IN_STATE])
    with pytest.raises(DefinitionChanged, match="run `pledger rebuild counted`"):
        projector.catch_up()
    assert rows(connection) == states_by_hand(log)  # the other view went on

    made = rebuild(log, second)
    (difference,) = made.differences
    assert (difference.rows, difference.columns) == (0, ("last",))
    wanted = "SELECT many, last FROM ledger_views.counted WHERE stream = 'lamp/1'"
    assert connection.execute(wanted).fetchone() == (2, 2)
    Projector(log, [second]).catch_up()

    third = counted("stream text, last bigint", 3)  # a column goes
    rebuild(log, third)
    assert connection.execute("SELECT * FROM ledger_views.counted WHERE stream = 'lamp/1'").fetchone() == (
        "lamp/1",
        2,
    )


def test_columns_that_change_are_told_to_who_shows_them(
    log: Ledger, connection: Connection, counted: Callable[[str, int], View]
) -> None:
    lamps(log, 3)
    first = counted("stream text, many bigint", 1)
    Projector(log, [first]).catch_up()
    connection.execute("CREATE SCHEMA mine CREATE VIEW busy AS SELECT stream FROM ledger_views.counted")
    second = counted("stream text, last bigint", 2)
    with pytest.raises(ViewFailed, match=r"columns of its table counted change that mine\.busy shows"):
        rebuild(log, second)
    connection.execute("DROP VIEW mine.busy")
    assert rebuild(log, second).continued
    found = connection.execute("SELECT last FROM ledger_views.counted WHERE stream = 'lamp/1'").fetchone()
    assert found == (2,)


def test_a_users_own_view_on_it_sees_the_new_copy(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    Projector(log, [IN_STATE]).catch_up()
    connection.execute(
        "CREATE SCHEMA mine CREATE VIEW lit AS SELECT * FROM ledger_views.in_state WHERE status = 'on'"
    )
    lamps(log, 4)
    rebuild(log, IN_STATE)
    Projector(log, [IN_STATE]).catch_up()
    wanted = sorted(stream for stream, status, *_ in states_by_hand(log) if status == "on")
    assert sorted(s for (s,) in connection.execute("SELECT stream FROM mine.lit")) == wanted


def test_a_part_is_folded_anew(log: Ledger, connection: Connection) -> None:
    lamps(log, 12)
    Projector(log, [IN_STATE]).catch_up()
    connection.execute("SET ROLE ledger_projector")
    connection.execute("UPDATE ledger_views.in_state_1 SET status = 'broken'")
    with projecting(log) as other:
        assert refold(Copies(other, "ledger"), IN_STATE, 1, prefix="lamp/1") == 3
    broken = {stream for stream, status, *_ in rows(connection) if status == "broken"}
    assert len(broken) == 9
    assert not broken & {"lamp/1", "lamp/10", "lamp/11"}
    with projecting(log) as other:
        refold(Copies(other, "ledger"), IN_STATE, 1, category="lamp")
    assert rows(connection) == states_by_hand(log)


def test_a_rebuilt_view_that_nobody_follows_comes_to_the_end_of_the_log(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    lamps(log, 9)
    made = rebuild(log, IN_STATE)
    assert made.position == log.bound()
    assert rows(connection) == states_by_hand(log)
    with log.open_all(*(OpenLamp(f"late {n}") for n in range(3))) as late:
        for lamp in late:
            lamp.make()
    assert roll_back(log, IN_STATE).position == log.bound()
    assert rows(connection) == states_by_hand(log)
