"""Heads: the row that is version check, snapshot and current state; it may be missing or behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import ANY, EXISTS, NEW, Append, Body, Exact, Guard, GuardFailed, Ledger, StreamConflict
from ledger.domain.state import load
from ledger.log.append import body_of
from tests.lamp import Lamp, LampBroke, LampMade, LampRead, LampSwitchedOn, OpenLamp, Status

Connection = psycopg.Connection[Any]


class FreshLamp(OpenLamp):
    """The same domain after its `evolve` was changed."""

    STATE_SCHEMA = 2


class NeverFolds(OpenLamp):
    """Reads what the head keeps; a fold of an event would be noticed."""

    @staticmethod
    def evolve(lamp: Lamp, event: Any, at: Any) -> Lamp:
        raise AssertionError("folded")


def folded(log: Ledger, name: str) -> Lamp:
    """The state as the fold of all events."""
    past = [(recorded.event, recorded.recorded_at) for recorded in log.read(f"lamp/{name}")]
    return OpenLamp(name, past=past).state


def forget(connection: Connection, what: str = "TRUNCATE ledger.heads") -> None:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute(what)  # type: ignore[arg-type]


def use(log: Ledger, name: str = "a", reads: int = 3) -> None:
    with log.open(OpenLamp, name) as lamp:
        lamp.make(40, {"deep": [1, {"er": 2.0}]})
    for value in range(reads):
        with log.open(OpenLamp, name) as lamp:
            lamp.read([value, {"x": value}])
    with log.open(OpenLamp, name) as lamp:
        lamp.switch_on()


def test_the_state_of_a_head_is_the_fold_of_the_events(log: Ledger) -> None:
    use(log)
    head = log.head("lamp/a")
    assert head is not None
    assert (head.version, head.state_version, head.status) == (5, 5, "on")
    assert load(Lamp, head.state or "") == folded(log, "a")
    opened = log.load(NeverFolds, "a")
    assert (opened.state, opened.version) == (folded(log, "a"), 5)
    assert opened.state.made_at == log.read("lamp/a")[0].recorded_at


def test_a_head_made_by_several_streams_at_once_is_the_fold_too(log: Ledger) -> None:
    lamps = [log.load(OpenLamp, name) for name in "abc"]
    for lamp in lamps:
        lamp.make()
        lamp.read([1, [2]])
    log.commit(*lamps)
    for lamp in lamps:
        assert log.load(NeverFolds, *lamp.key).state == folded(log, str(lamp.key[0])) == lamp.state


@pytest.mark.parametrize("times", [1, 2])
def test_an_append_at_any_version_leaves_the_state_behind_and_readers_fold_the_rest(
    log: Ledger, times: int
) -> None:
    use(log)
    for _ in range(times):
        log.append("lamp/a", LampRead(value=9))
    log.append("lamp/a", LampBroke(), expected=5 + times)
    head = log.head("lamp/a")
    assert head is not None
    assert (head.version, head.state_version, head.status) == (6 + times, 5, "broken")
    assert log.load(OpenLamp, "a").state == folded(log, "a")
    with log.open(OpenLamp, "a") as lamp:
        lamp.read()
    assert log.load(NeverFolds, "a").state == folded(log, "a")


def test_a_state_folded_from_an_older_base_is_not_kept(log: Ledger) -> None:
    use(log, reads=0)
    old = log.head("lamp/a")
    assert old is not None
    log.append("lamp/a", LampRead())
    log.append_all(
        [Append("lamp/a", [body_of(LampRead())], ANY, state=old.state, base=2, state_schema=old.state_schema)]
    )
    head = log.head("lamp/a")
    assert head is not None
    assert (head.version, head.state_version) == (4, 2)
    assert log.load(OpenLamp, "a").state == folded(log, "a")


@pytest.mark.parametrize(
    "lost", ["TRUNCATE ledger.heads", "UPDATE ledger.heads SET state = NULL, state_version = 0"]
)
def test_where_heads_are_lost_everything_still_works_and_heals(
    log: Ledger, connection: Connection, lost: str
) -> None:
    for name in "abcdef":
        use(log, name)
    forget(connection, lost)
    assert log.load(OpenLamp, "a").state == folded(log, "a")
    assert [lamp.version for lamp in log.load_each([OpenLamp(name) for name in "abc"])] == [5, 5, 5]
    with pytest.raises(StreamConflict) as caught:
        log.append("lamp/a", LampRead(), expected=4)
    assert caught.value.found == 5
    with pytest.raises(StreamConflict):
        log.append("lamp/b", LampRead(), expected=NEW)
    with pytest.raises(StreamConflict):
        log.append("lamp/c", LampRead(), LampRead(), expected=Exact(6))
    with pytest.raises(StreamConflict):
        log.append("lamp/none", LampRead(), expected=EXISTS)
    assert log.append("lamp/c", LampRead(), expected=5).version == 6
    assert log.append("lamp/d", LampRead()).version == 6
    assert log.append("lamp/e", LampRead(), LampRead(), expected=EXISTS).version == 7
    with log.open(OpenLamp, "a") as lamp:
        lamp.read()
    assert log.load(NeverFolds, "a").state == folded(log, "a")
    assert [log.load(OpenLamp, name).state == folded(log, name) for name in "abcdef"] == [True] * 6


def test_a_head_that_was_lost_learns_its_status_again_from_an_opened_stream(
    log: Ledger, connection: Connection
) -> None:
    use(log)
    forget(connection)
    with log.open(OpenLamp, "a") as lamp:
        lamp.read()
    log.append("lamp/a", LampRead(), expected=Guard(frozenset({"on"})))
    with pytest.raises(GuardFailed, match="found status on"):
        log.append("lamp/a", LampRead(), expected=Guard(frozenset({"broken"})))


def test_changed_code_folds_anew_and_then_keeps_its_own_state(log: Ledger) -> None:
    use(log)
    head = log.head("lamp/a")
    lamp = log.load(FreshLamp, "a")
    assert (lamp.version, lamp.state) == (5, folded(log, "a"))
    lamp.read("new")
    log.commit(lamp)
    newer = log.head("lamp/a")
    assert head is not None
    assert newer is not None
    assert newer.state_schema == FreshLamp.state_schema() != head.state_schema == OpenLamp.state_schema()
    assert log.load(OpenLamp, "a").state == folded(log, "a")
    with log.open(OpenLamp, "a") as old:  # old code still running beside it
        old.break_()
    assert log.load(FreshLamp, "a").state == folded(log, "a")


def test_streams_without_heads_are_opened_from_their_events(log: Ledger) -> None:
    log.append("lamp/a", LampMade(watts=3), LampSwitchedOn(), head=False)
    assert log.head("lamp/a") is None
    assert log.load(OpenLamp, "a").state == folded(log, "a")
    with log.open(OpenLamp, "a") as lamp:
        lamp.break_()
    head = log.head("lamp/a")
    assert head is not None
    assert (head.version, head.state_version, head.status) == (3, 3, "broken")


@pytest.mark.parametrize("how", ["one", "many", "open"])
def test_a_head_that_is_behind_is_healed(log: Ledger, how: str) -> None:
    use(log)
    log.append("lamp/a", LampRead(), head=False)
    log.append("lamp/a", LampBroke(), expected=6, head=False)
    for stale in (5, 6, 8):
        with pytest.raises(StreamConflict) as caught:
            log.append("lamp/a", LampRead(), expected=stale)
        assert caught.value.found == 7
    if how == "one":
        assert log.append("lamp/a", LampRead(), expected=7).version == 8
    elif how == "many":
        assert log.append("lamp/a", LampRead(), LampRead()).version == 9
    else:
        with log.open(OpenLamp, "a") as lamp:
            lamp.read()
    opened = log.load(OpenLamp, "a")
    assert (opened.state, opened.state.status) == (folded(log, "a"), Status.BROKEN)


def test_an_unknown_event_counts_and_changes_nothing(log: Ledger) -> None:
    use(log)
    log.append("lamp/a", Body("moon.rose", 1, '{"a":1}'), Body("app:Event", 1, None, b"\x00\xff"))
    lamp = log.load(OpenLamp, "a")
    assert (lamp.version, lamp.state) == (7, folded(log, "a"))


def test_a_conflict_leaves_no_head_of_a_stream_that_is_not_there(log: Ledger) -> None:
    for expected in (Exact(1), EXISTS, Guard(frozenset({"on"}))):
        for events in ([LampRead()], [LampRead(), LampRead()]):
            with pytest.raises(StreamConflict):
                log.append("lamp/nowhere", *events, expected=expected)
    assert log.head("lamp/nowhere") is None
    assert log.append("lamp/nowhere", LampRead(), expected=NEW).version == 1


def test_a_large_state_and_a_state_with_every_kind_of_text_come_back(log: Ledger) -> None:
    values = ["\x01", '"', "\\", "é🔬", "\u2028", "x" * 100_000, "\\u0001", "a\x7fb"]
    with log.open(OpenLamp, "a") as lamp:
        lamp.make()
        for value in values:
            lamp.read(value)
    assert log.load(NeverFolds, "a").state.values == tuple(values)
    assert log.load(NeverFolds, "a").state == folded(log, "a")


def test_what_the_head_keeps_is_plain_json(log: Ledger, connect: Callable[..., Connection]) -> None:
    use(log)
    row = connect(autocommit=True).execute("SELECT state, state->>'made_at' FROM ledger.heads").fetchone()
    assert row is not None
    assert (row[0]["status"], row[0]["watts"]) == ("on", 40.0)
    assert row[1].endswith("Z")
    assert json.loads(json.dumps(row[0])) == row[0]


def test_a_stream_without_a_key_is_loaded_with_others(log: Ledger) -> None:
    with log.open(OpenLamp) as only:
        only.make()
    assert [lamp.version for lamp in log.load_each([OpenLamp(), OpenLamp("a")])] == [1, 0]


def test_a_stream_with_an_empty_key_is_loaded_without_those_whose_names_begin_alike(log: Ledger) -> None:
    for key in ("", "a"):
        with log.open(OpenLamp, key) as lamp:
            lamp.make()
    assert [lamp.version for lamp in log.load_each([OpenLamp("")])] == [1]
