"""An append decided by the status of a stream: what opening it, deciding and appending would do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import BadInput, Ledger, NoPermission, StreamConflict, connect
from ledger.log.append_from import Choices
from tests.lamp import Lamp, LampBroke, LampMade, LampRead, LampSwitchedOn, OpenLamp, Status

BREAK = Choices.of(
    OpenLamp,
    {
        Lamp(Status.MADE, 1.0): LampBroke(reason="was made"),
        Lamp(Status.ON, 1.0): LampBroke(reason="was on"),
    },
)


def test_the_event_and_the_state_are_those_of_the_status_that_is_found(log: Ledger) -> None:
    for name, acts in (("dark", ["make"]), ("lit", ["make", "switch_on"])):
        with log.open(OpenLamp, name) as lamp:
            for act in acts:
                getattr(lamp, act)()
        chosen = log.append_from(f"lamp/{name}", BREAK)
        assert chosen is not None
        was = "on" if len(acts) == 2 else "made"
        assert (chosen.before, chosen.version) == (was, len(acts) + 1)
        (recorded,) = log.read(f"lamp/{name}", after=len(acts))
        assert (recorded.position, recorded.recorded_at) == (chosen.position, chosen.recorded_at)
        assert recorded.event == LampBroke(reason=f"was {was}")
        head = log.head(f"lamp/{name}")
        assert head is not None
        assert (head.version, head.state_version, head.status) == (chosen.version, chosen.version, "broken")
        assert log.load(OpenLamp, name).state.status is Status.BROKEN


def test_nothing_is_recorded_of_a_status_without_a_choice_or_of_no_stream(log: Ledger) -> None:
    with log.open(OpenLamp, "x") as lamp:
        lamp.make()
        lamp.break_()
    assert log.append_from("lamp/x", BREAK) is None
    assert log.append_from("lamp/never", BREAK) is None
    assert len(log.read("lamp/x")) == 2
    assert log.head("lamp/never") is None


def test_a_stream_without_events_has_no_status_or_the_initial_one(log: Ledger) -> None:
    made = Choices.of(OpenLamp, {Lamp(): LampMade()})
    again = Choices.of(OpenLamp, {Lamp(Status.ON): LampMade()}, initial="on")
    for name, choices, before in (("new", made, ""), ("other", again, "on")):
        chosen = log.append_from(f"lamp/{name}", choices)
        assert chosen is not None
        assert (chosen.before, chosen.version) == (before, 1)
        assert log.load(OpenLamp, name).state.made_at == chosen.recorded_at
        assert log.append_from(f"lamp/{name}", choices) is None


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM ledger.heads",
        "UPDATE ledger.heads SET state_schema = 1",
        "UPDATE ledger.heads SET state = NULL, state_version = 0",
        "UPDATE ledger.heads SET version = 1, state_version = 1",
    ],
)
def test_a_head_that_does_not_hold_the_state_of_all_events_decides_nothing(
    log: Ledger, admin_dsn: str, change: str
) -> None:
    with log.open(OpenLamp, "x") as lamp:
        lamp.make()
        lamp.switch_on()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(change.encode())
    assert log.append_from("lamp/x", BREAK) is None
    assert [row.topic for row in log.read("lamp/x")] == ["lamp.made", "lamp.switched_on"]


def test_of_many_at_once_one_is_recorded_and_the_others_are_told(log: Ledger) -> None:
    with log.open(OpenLamp, "x") as lamp:
        lamp.make()

    def act(_: int) -> Any:
        try:
            return log.append_from("lamp/x", BREAK)
        except StreamConflict as conflict:
            return conflict.found

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(act, range(8)))
    (chosen,) = [one for one in found if isinstance(one, tuple)]
    assert chosen.version == 2
    assert all(one in (None, 2) for one in found if one is not chosen)
    assert len(log.read("lamp/x")) == 2


def test_a_login_that_only_writes_learns_no_status(log: Ledger, only: Callable[[str], str]) -> None:
    with log.open(OpenLamp, "x") as lamp:
        lamp.make()
    with connect(only("ledger_writer"), create=False) as writer, pytest.raises(NoPermission):
        writer.append_from("lamp/x", BREAK)
    assert len(log.read("lamp/x")) == 1


def test_choices_are_of_one_topic_and_lead_to_a_status() -> None:
    with pytest.raises(BadInput, match="one topic"):
        Choices.of(OpenLamp, {})
    with pytest.raises(BadInput, match="one topic"):
        Choices.of(OpenLamp, {Lamp(Status.MADE): LampSwitchedOn(), Lamp(Status.ON): LampBroke()})
    with pytest.raises(BadInput, match="leads to no status"):
        Choices.of(OpenLamp, {Lamp(Status.MADE): LampRead()})


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reason=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40))
def test_any_text_is_stored_as_it_is(log: Ledger, reason: str) -> None:
    number = log.bound() + 1
    event = LampBroke(reason=reason)
    chosen = log.append_from(f"lamp/{number}", Choices.of(OpenLamp, {Lamp(values=(reason,)): event}))
    assert chosen is not None
    assert log.read(f"lamp/{number}")[0].event == event
    assert log.load(OpenLamp, number).state.values == (reason,)
