"""Slips in the definition of a domain: refused where they can be seen first, with the cure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from ledger import Event, Stream
from ledger.domain.known import KNOWN
from tests.lamp import MOVES, Lamp, LampMade, LampRead, LampSwitchedOn, Status, evolve

PARTS: dict[str, Any] = {"MOVES": MOVES, "STATE": Lamp}


def stream(evolve: Any) -> Any:
    """A stream class of no category, folded by this."""
    return type(
        "OpenThing", (Stream,), PARTS | {"evolve": staticmethod(evolve), "name_of": lambda *_: "thing/1"}
    )


def test_evolve_must_be_static() -> None:
    with pytest.raises(TypeError, match=r"OpenThing.evolve .* write `evolve = staticmethod\(evolve\)`"):
        type("OpenThing", (Stream,), PARTS | {"CATEGORY": "definitions_thing", "evolve": evolve})
    assert "definitions_thing" not in KNOWN.streams


def test_where_a_fact_leads_must_be_a_status() -> None:
    with pytest.raises(TypeError, match="leads to 'done': `to` must be a member of a StrEnum"):
        type("ThingDone", (Event,), {}, topic="definitions_thing.done", to="done")


def test_an_evolve_that_does_not_take_over_to_is_refused() -> None:
    def forgets(lamp: Lamp, event: Event, at: datetime, /) -> Lamp:
        return lamp if isinstance(event, LampSwitchedOn) else evolve(lamp, event, at)

    opened = stream(forgets)()
    opened.record(LampMade())
    with pytest.raises(TypeError, match=r"at made on LampSwitchedOn, which leads to on: .*to or"):
        opened.record(LampSwitchedOn())
    assert (opened.state.status, opened.news) == (Status.MADE, [LampMade()])


def test_an_evolve_that_moves_without_to_is_refused() -> None:
    def moves(lamp: Lamp, event: Event, at: datetime, /) -> Lamp:
        return replace(lamp, status=Status.ON if isinstance(event, LampRead) else Status.MADE)

    opened = stream(moves)()
    opened.record(LampMade())
    with pytest.raises(TypeError, match=r"made to on on LampRead, which has no `to`: .*class LampRead\(Ev"):
        opened.record(LampRead())


def test_what_is_recorded_is_folded_as_it_is() -> None:
    def forgets(lamp: Lamp, event: Event, at: datetime, /) -> Lamp:
        return lamp

    assert stream(forgets)(past=[(LampMade(), datetime(2030, 1, 1))]).version == 1  # noqa: DTZ001
