"""An event that a reactor cannot read, or fails on, parks its stream until a retry; all others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers import Answer, Reactor
from consumers.pipelines import readiness
from ledger import Ledger, Recorded
from ledger.errors import CommandReused, ReactionFailed
from ledger.log.readers import ParkedStreams, Positions
from tests.consumers.conftest import Lab
from tests.consumers.mourner import broken, mourn, mourning, values
from tests.faults.conftest import eventually
from tests.forgery import forge
from tests.jobs.sets import Sets
from tests.lamp import LampBroke, LampMade, LampRead

Connection = psycopg.Connection[Any]


def careful(event: Recorded) -> list[Answer]:
    """Reads what it answers."""
    assert isinstance(event.event, LampBroke)
    return mourn(event)


def failing(*names: str) -> Callable[[Recorded], list[Answer]]:
    """A reaction that fails on lamps of these names, until they are taken out of `failing.names`."""
    left = set(names)

    def react(event: Recorded) -> list[Answer]:
        if event.stream.partition("/")[2] in left:
            raise ZeroDivisionError(f"by {event.stream}")
        return mourn(event)

    react.left = left  # type: ignore[attr-defined]
    return react


def reactor(log: Ledger, react: Callable[[Recorded], list[Answer]], **options: Any) -> Reactor:
    return Reactor(log, "mourner", react, topics={"lamp.broke"}, **options)


def test_one_that_cannot_be_read_stops_no_other_stream(log: Ledger, connection: Connection) -> None:
    broken(log, "a")
    bad = forge(connection, "lamp/b", "lamp.broke", "[1]")
    broken(log, "c")
    log.append("lamp/b", LampBroke())
    broken(log, "a")
    made = reactor(log, careful)
    made.catch_up()
    assert values(log)[::2] == ["a", "c"], "the later event of the stream waits"
    assert made.parked == {"lamp/b": bad}
    (parked,) = ParkedStreams(log).all("mourner")
    assert (parked.stream, parked.position, parked.topic, parked.tries) == ("lamp/b", bad, "lamp.broke", 1)
    assert parked.error == "lamp.broke cannot be read: Input should be an object"
    again = reactor(log, careful)
    broken(log, "d")
    again.catch_up()
    assert values(log)[::2] == ["a", "c", "d"], "also after a new start"
    assert [one.tries for one in ParkedStreams(log).all()] == [1]


def test_a_retry_goes_over_the_log_again_in_order_and_repeats_nothing(log: Ledger) -> None:
    react = failing("b")
    made = reactor(log, react)
    broken(log, "a", "b")
    log.append("lamp/b", LampBroke())
    broken(log, "c")
    made.catch_up()
    assert ParkedStreams(log).retry("mourner", "lamp/x") == 0
    assert ParkedStreams(log).retry("mourner", "lamp/b") == 1
    made.catch_up()
    (parked,) = ParkedStreams(log).all()
    assert (parked.tries, parked.again) == (2, False), "it failed again, and waits for another retry"
    react.left.clear()  # type: ignore[attr-defined]
    assert ParkedStreams(log).retry("mourner") == 1
    with made:
        eventually(lambda: not ParkedStreams(log).all())
        eventually(lambda: values(log)[::2] == ["a", "c", "b", "b"])
    assert made.parked == {}
    broken(log, "d")
    log.append("lamp/b", LampBroke())
    made.catch_up()
    assert values(log)[::2] == ["a", "c", "b", "b", "d", "b"]


def test_it_stays_parked_at_the_next_event_that_fails(log: Ledger) -> None:
    first, second = (log.append("lamp/b", LampBroke()).last_position for _ in range(2))
    faults = {first, second}

    def react(event: Recorded) -> list[Answer]:
        if event.position in faults:
            raise ZeroDivisionError
        return mourn(event)

    made = reactor(log, react)
    made.catch_up()
    faults.remove(first)
    ParkedStreams(log).retry("mourner")
    made.catch_up()
    assert [(one.position, one.tries) for one in ParkedStreams(log).all()] == [(second, 2)]
    assert values(log)[1::2] == [first]


def test_one_that_is_killed_in_the_midst_of_it_does_it_again(log: Ledger) -> None:
    react = failing("b")
    broken(log, "b", "c")
    reactor(log, react).catch_up()
    ParkedStreams(log).retry("mourner")

    def killed(event: Recorded) -> list[Answer]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reactor(log, killed).catch_up()
    assert [one.again for one in ParkedStreams(log).all()] == [True]
    reactor(log, mourn).catch_up()
    assert values(log)[::2] == ["c", "b"]
    assert ParkedStreams(log).all() == []


def test_what_another_process_handles_again_is_handled_here_too(
    log: Ledger, another: Callable[[], Ledger]
) -> None:
    react = failing("b")
    broken(log, "b", "c")
    here, there = reactor(log, react), reactor(another(), react)
    here.catch_up()
    there.catch_up()
    react.left.clear()  # type: ignore[attr-defined]
    ParkedStreams(log).retry("mourner")
    there.catch_up()
    assert (here.parked.keys(), there.parked) == ({"lamp/b"}, {})
    log.append("lamp/b", LampBroke())
    with here:
        eventually(lambda: values(log)[::2] == ["c", "b", "b"])
    assert not here.parked


def test_what_passes_parks_nothing(log: Ledger) -> None:
    """A connection of the reaction's own that breaks is no fault of the event."""
    broken(log, "a")
    errors: list[Exception] = [ConnectionResetError("gone"), psycopg.OperationalError("away"), MemoryError()]

    def react(event: Recorded) -> list[Answer]:
        if errors:
            raise errors.pop()
        return mourn(event)

    made = reactor(log, react)
    for _ in range(3):
        with pytest.raises(ReactionFailed):
            made.catch_up()
    assert ParkedStreams(log).all() == []
    made.catch_up()
    assert values(log)[::2] == ["a"]


def test_an_answer_that_is_refused_parks(log: Ledger) -> None:
    broken(log, "a")
    mourning(log).catch_up()
    Positions(log).forget("mourner")
    reactor(log, lambda event: [Answer("mourning", [LampMade()])]).catch_up()
    (parked,) = ParkedStreams(log).all()
    assert parked.error.startswith(f"{CommandReused.__name__}: ")
    assert Positions(log).forget("mourner")
    assert ParkedStreams(log).all() == [], "who begins anew leaves out nothing"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    faults=st.sets(st.integers(0, 11), max_size=5),
    batch=st.integers(1, 4),
)
def test_after_the_retry_all_is_answered_as_if_nothing_had_failed(
    log: Ledger, events: list[int], faults: set[int], batch: int
) -> None:
    """Each stream in its order, and each event once."""
    run = f"r{log.bound()}"
    positions = [
        log.append(f"{run}/{lamp}", LampRead(value=nth)).last_position for nth, lamp in enumerate(events)
    ]
    bad = {positions[nth] for nth in faults if nth < len(positions)}

    def react(event: Recorded) -> list[Answer]:
        if event.position in bad:
            raise LookupError(event.position)
        return [Answer(f"answer/{event.stream}", [LampRead(value=event.position)])]

    made = Reactor(log, run, react, topics={"lamp.read"}, after=positions[0] - 1, batch=batch)
    made._follower = lambda after: _only(log, after, run, batch)  # type: ignore[assignment]
    made.catch_up()
    assert len(ParkedStreams(log).all(run)) == len({events[positions.index(one)] for one in bad})
    bad.clear()
    ParkedStreams(log).retry(run)
    made.catch_up()
    assert ParkedStreams(log).all(run) == []
    for lamp in set(events):
        wanted = [position for position, one in zip(positions, events, strict=True) if one == lamp]
        assert values(log, f"answer/{run}/{lamp}") == wanted


def _only(log: Ledger, after: Any, run: str, batch: int) -> Any:
    """A follower that sees the lamps of one example only."""
    from projections import Follower

    class Only(Follower):
        def poll(self) -> list[Recorded]:
            while events := super().poll():
                if wanted := [event for event in events if event.stream.startswith(f"{run}/")]:
                    return wanted
            return []

    return Only(log, after, topics={"lamp.read"}, batch=batch)


# The reactors that are shipped


@pytest.mark.parametrize(
    ("stream", "topic", "body"),
    [
        ("job/evil", "job.created", "[1]"),
        ("job/evil", "job.dispatching", "{}"),
        ("job/evil", "job.dispatched", '{"round": 1}'),
        ("job/evil", "job.child_added", '"x"'),
        ("job/evil", "job.created", '{"operation": "x", "parent": [1]}'),
        ("batch/evil/1", "batch.completed", "5"),
    ],
)
def test_the_fan_in_goes_on(log: Ledger, connection: Connection, stream: str, topic: str, body: str) -> None:
    sets = Sets(log)
    forge(connection, stream, topic, body)
    forge(connection, stream, "job.failed" if stream.startswith("job") else "batch.failed", "null")
    job = sets.deferred(batches=1)
    sets.end("complete", job, "1")
    sets.fan_in()
    sets.cascade()
    assert sets.jobs.get(job).status == "succeeded"


def test_readiness_goes_on(lab: Lab, log: Ledger, connection: Connection) -> None:
    lab.build(strips=2, channels=2, plan=2)
    forge(connection, "lsm.strip/p/1/1/1", "lsm.strip.completed", "[1]")
    forge(connection, "lsm.strip/q/x/1/1", "lsm.strip.created", "[1]")
    forge(connection, "lsm.project/q", "lsm.project.planned", "{}", raw=b"\xff")
    lab.compress(1, 2, channel_id=2)
    readiness(log).catch_up()
    assert [info.stream for info in log.streams("lsm.channel.ready/")] == ["lsm.channel.ready/p/1/2"]
    assert "lsm.strip/p/1/1/1" in {one.stream for one in ParkedStreams(log).all("readiness")}
