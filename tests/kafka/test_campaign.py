"""Relays and consumers, while they and all that they stand on are killed, frozen and started again."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.kafka.campaign import Campaign
from tests.kafka.faults import Faults, Lane, table, wanted
from tests.kafka.topics_oracle import told

FULL = 40.0
"""Minutes in which two processors do all that faults.py asks for; `--minutes` tells the share."""
SHORT: Sequence[Sequence[Lane]] = (
    (
        {"relay killed": 3, "relay frozen": 1},
        {"consumer killed": 3, "consumer frozen": 1},
        {"duplicates injected": 1},
    ),
)
"""The members' faults in each run of the tests; one for the brokers and one for the server follow."""
BROKERS = ("leader killed", "coordinator killed", "leader frozen", "broker ended", "broker's disk full")
SERVER = ("server killed", "server's disk full")


def campaign(seed: int, phases: Sequence[Sequence[Lane]]) -> str:
    """Run it, and return its figures."""
    began = time.monotonic()
    with Campaign(seed) as running:
        faults = Faults(running)
        faults.run(phases)
        minutes = (time.monotonic() - began) / 60
        running.heal()
        rebalances = running.rebalances()
        wrong = running.wrong()
        figures = (
            f"seed {seed}: {len(running.rows):,} events, {len(running.foreign.written):,} records written "
            f"again, {rebalances} rebalances, {minutes:.1f} minutes of faults, {len(wrong)} differences"
        )
        assert not wrong, f"{figures}: {told(wrong)}"
    asked = sum((Counter(dict(lane)) for lanes in phases for lane in lanes), Counter[str]())
    return f"\n{figures}\n{table(faults.done, asked)}"


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_in_a_short_campaign() -> None:
    seed = time.time_ns() % 10_000
    chance = random.Random(seed)
    campaign(seed, [*SHORT, [{chance.choice(BROKERS): 1, chance.choice(SERVER): 1}]])


@pytest.mark.slow
@pytest.mark.parametrize("phase", [0, 1], ids=["members", "brokers and server"])
def test_nothing_is_lost_or_doubled_in_a_kafka_campaign(
    minutes: float, capsys: pytest.CaptureFixture[str], phase: int
) -> None:
    found = campaign(time.time_ns() % 10_000, [wanted(minutes / FULL)[phase]])
    with capsys.disabled():
        print(found)
