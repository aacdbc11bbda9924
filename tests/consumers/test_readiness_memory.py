"""What a reactor has in memory, and when it starts again, changes nothing that it records."""

from __future__ import annotations

import random

import pytest

from consumers.pipelines import NAME, Readiness
from consumers.reactor import Reactor
from ledger import Ledger
from ledger.pipelines import LSM, OCT, LSMStripState
from tests.consumers import oracle
from tests.consumers.conftest import Lab

GATES = (*LSM.gates, *OCT.gates)


def live(lab: Lab, seed: int, steps: int) -> None:
    """A random history of a small project, much of it at the edge of completeness."""
    chance = random.Random(seed)
    lab.build(strips=2, channels=2, plan=2)
    for _ in range(steps):
        if chance.random() < 0.2:
            with lab.service.open_project("p") as project:
                for channel_id in (1, 2):
                    for strip_id in chance.sample((1, 2, 3), 2):
                        strip = project.get_or_create_strip_by_parts(1, strip_id, channel_id)
                        (strip.reset_compressed if chance.random() < 0.4 else strip.set_compressed)()
                if chance.random() < 0.1:
                    project.plan(strips_per_slice=chance.choice([1, 2]))
            continue
        channel_id, strip_id = chance.randint(1, 2), chance.randint(1, 3)
        match chance.randint(0, 30):
            case 0:
                with lab.service.open_project("p") as project:
                    project.delete_slice(1) if strip_id == 1 else project.delete_channel(1, channel_id)
            case 1:
                with lab.service.open_project("p") as project:
                    project.delete_strip(1, channel_id, strip_id)
            case 2:
                lab.plan(chance.choice([1, 2, 2, 3, None]))
            case 3:
                with lab.service.open_strip("p", slice_id=1, channel_id=channel_id, strip_id=strip_id) as one:
                    chance.choice([one.mark_failed, one.mark_started, one.mark_completed])()
                    one.set_compressed()
                    one.set_archived()
            case 4 | 5 | 6 | 7 | 8:
                with lab.service.open_strip("p", slice_id=1, channel_id=channel_id, strip_id=strip_id) as one:
                    one.reset_compressed()
            case _:
                with lab.service.open_strip("p", slice_id=1, channel_id=channel_id, strip_id=strip_id) as one:
                    one.set_compressed()


@pytest.mark.parametrize("seed", range(3))
def test_restarted_at_every_event_or_with_no_memory_it_records_the_same(
    lab: Lab, log: Ledger, seed: int
) -> None:
    live(lab, seed, 100)
    if seed == 0:
        reaction = Readiness(log, GATES, {}, most=1)
        Reactor(log, NAME, reaction, topics=reaction.topics).catch_up()
        assert len(reaction._sets) == 1
    elif seed == 1:
        cold = frozenset(Readiness(log, GATES, {}).topics)
        Reactor(log, NAME, lambda event: Readiness(log, GATES, {})(event), topics=cold).catch_up()
    rounds = lab.rounds()
    assert len(rounds) > 5
    again = Readiness(log, GATES, {})
    twice = Reactor(log, "twice", lambda event: [*again(event), *again(event)][:0], topics=again.topics)
    assert twice.catch_up() > 80
    events = [event for event in log.log(0, log.bound()) if event.topic in again.topics]
    positions = [position for position, _ in oracle.recorded(oracle.rows(lab.dsn))]
    for start in (0, positions[2], positions[2] + 1):
        seen = [answer for event in events if event.position >= start for answer in again(event)]
        assert len(seen) == sum(position >= start for position in positions), "asked about events of before"


def test_the_past_is_loaded_as_it_was_at_each_position(lab: Lab, log: Ledger) -> None:
    live(lab, 7, 40)
    events = [event for event in log.log(0, log.bound()) if event.stream.startswith("lsm.strip/")]
    for at in range(0, log.bound() + 1, 7):
        folded: dict[str, LSMStripState] = {}
        for event in events:
            if event.position <= at:
                strip = folded.setdefault(event.stream, LSMStripState(*event.stream.split("/")[1:]))
                strip.replay(event.event, event.recorded_at)
        loaded = log.load_below(("lsm.strip/p/", LSMStripState), upto=at)
        assert {one.name: (one.state, one.version) for one in loaded} == {
            name: (one.state, one.version) for name, one in folded.items()
        }
