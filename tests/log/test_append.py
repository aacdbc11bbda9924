"""Appending through the ledger: expectations, streams together, commands, scopes."""

from __future__ import annotations

import pytest

from ledger import (
    ANY,
    EXISTS,
    NEW,
    Append,
    CommandReused,
    Exact,
    Guard,
    GuardFailed,
    Ledger,
    MoveNotAllowed,
    StreamConflict,
)
from tests.lamp import LampBroke, LampMade, LampRead, OpenLamp, Status


def test_an_opened_stream_records_what_its_methods_decided(log: Ledger) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make(40)
        lamp.switch_on()
    assert (lamp.version, lamp.news) == (2, [])
    found = log.load(OpenLamp, "hall")
    assert (found.version, found.state) == (2, lamp.state)
    first = log.read("lamp/hall")[0]
    assert (first.version, first.event, first.meta.actor) == (
        1,
        LampMade(watts=40),
        "tester",
    )


def test_an_exception_in_an_open_scope_stores_nothing(log: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), log.open(OpenLamp, "hall") as lamp:  # noqa: PT012
        lamp.make()
        _ = 1 / 0
    assert log.load(OpenLamp, "hall").version == 0


def test_a_move_that_the_machine_has_not_is_refused(log: Ledger) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make()
        lamp.break_()
        with pytest.raises(MoveNotAllowed, match="cannot move from broken to on"):
            lamp.switch_on()
    assert log.load(OpenLamp, "hall").state.status is Status.BROKEN


def test_of_two_scopes_the_second_conflicts_and_stores_nothing(log: Ledger) -> None:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make()
    with pytest.raises(StreamConflict) as caught, log.open(OpenLamp, "hall") as first:  # noqa: PT012
        with log.open(OpenLamp, "hall") as second:
            second.switch_on()
        first.break_()
    assert (caught.value.stream, caught.value.found) == ("lamp/hall", 2)
    assert log.load(OpenLamp, "hall").version == 2


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize(
    ("expected", "refused_at", "taken_at"),
    [
        (NEW, 2, 0),
        (Exact(2), 1, 2),
        (Exact(2), 3, 2),
        (7, 2, 7),
        (EXISTS, 0, 2),
        (ANY, None, 0),
        (ANY, None, 5),
    ],
)
def test_expectations(
    log: Ledger, head: bool, expected: object, refused_at: int | None, taken_at: int
) -> None:
    def stream(name: str, version: int) -> str:
        for _ in range(version):
            log.append(name, LampRead(), head=head)
        return name

    if refused_at is not None:
        name = stream("a", refused_at)
        with pytest.raises(StreamConflict) as caught:
            log.append(name, LampRead(), expected=expected, head=head)  # type: ignore[arg-type]
        assert caught.value.found == refused_at
        with pytest.raises(StreamConflict):
            log.append(name, LampRead(), LampRead(), expected=expected, head=head)  # type: ignore[arg-type]
    name = stream("b", taken_at)
    assert log.append(name, LampRead(), expected=expected, head=head).version == taken_at + 1  # type: ignore[arg-type]


def test_streams_with_and_without_heads_may_be_mixed(log: Ledger) -> None:
    for version, head in enumerate([True, False, True, False, False, True, True]):
        assert log.append("mixed", LampRead(), expected=version, head=head).version == version + 1
        with pytest.raises(StreamConflict):
            log.append("mixed", LampRead(), expected=version, head=True)
        with pytest.raises(StreamConflict):
            log.append("mixed", LampRead(), expected=version, head=False)
    assert [r.version for r in log.read("mixed")] == list(range(1, 8))


def test_many_streams_are_appended_together_or_not_at_all(log: Ledger) -> None:
    log.append("b", LampRead())
    body = LampRead().body()
    appends = [
        Append("c", [_body(body)] * 2, NEW),
        Append("b", [_body(body)], Exact(1)),
        Append("a", [_body(body)], ANY),
    ]
    done = log.append_all(appends)
    assert done.versions == {"a": 1, "b": 2, "c": 2}
    assert done.last_position - done.first_position == 3
    assert [r.stream for r in log.log(done.first_position - 1, log.bound())] == ["c", "c", "b", "a"]
    with pytest.raises(StreamConflict) as caught:
        log.append_all(appends)
    assert caught.value.stream in ("b", "c")
    assert log.append("a", LampRead()).version == 2


def test_a_check_holds_another_stream_to_its_word(log: Ledger) -> None:
    log.append("parent", LampMade())
    child = Append("child", [_body(LampRead().body())], NEW)
    log.append_all([child, Append("parent", [], Guard(frozenset({"made"})))])
    log.append("parent", LampBroke())
    with pytest.raises(GuardFailed):
        log.append_all(
            [
                Append("other", [_body(LampRead().body())], NEW),
                Append("parent", [], Guard(frozenset({"made"}))),
            ]
        )
    log.append_all([Append("other", [_body(LampRead().body())], NEW), Append("nowhere", [], NEW)])
    assert log.head("nowhere") is None


def test_a_guard_looks_at_status_and_lease_token(log: Ledger) -> None:
    log.append_all([Append("job", [_body(LampMade().body())], NEW, status="made", set_token=7)])
    log.append("job", LampRead(), expected=Guard(frozenset({"made", "on"}), token=7))
    for guard, found in ((Guard(frozenset({"on"})), "status made"), (Guard(token=8), "lease token 7")):
        with pytest.raises(GuardFailed, match=found):
            log.append("job", LampRead(), expected=guard)
    with pytest.raises(StreamConflict):
        log.append("nothing", LampRead(), expected=Guard(frozenset({"on"})))
    log.append_all([Append("job", [_body(LampRead().body())], ANY, set_token=0)])
    with pytest.raises(GuardFailed, match="no lease"):
        log.append("job", LampRead(), expected=Guard(token=7))


@pytest.mark.parametrize("events", [1, 3])
def test_a_command_records_once_and_answers_alike(log: Ledger, events: int) -> None:
    first = log.append("a", *[LampRead(value=1)] * events, expected=NEW, command="c")
    again = log.append("a", *[LampRead(value=1)] * events, expected=NEW, command="c")
    assert again.repeated
    assert (again.first_position, again.recorded_at, again.versions) == (
        first.first_position,
        first.recorded_at,
        first.versions,
    )
    with pytest.raises(CommandReused):
        log.append("a", *[LampRead(value=2)] * events, command="c")
    assert len(log.read("a")) == events


def _body(data: str, topic: str = "lamp.read"):  # type: ignore[no-untyped-def]
    from ledger import Body

    return Body(topic, 1, data)
