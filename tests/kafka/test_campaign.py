"""Relays and consumers, while they and all that they stand on are killed, frozen and started again."""

from __future__ import annotations

import time

import pytest

from tests.kafka.campaign import Campaign
from tests.kafka.topics_oracle import told

SHORT = 15.0
"""Seconds of faults in each run of the tests."""


def campaign(seed: int, seconds: float, *, each: bool) -> None:
    with Campaign(seed) as running:
        running.run(seconds, each=each)
        running.heal()
        wrong = running.faults()
        print(f"seed {seed}: {len(running.rows)} events, {dict(running.done)}")
        assert not wrong, f"seed {seed}: {told(wrong)}"


def test_nothing_is_lost_or_doubled_in_a_short_campaign() -> None:
    campaign(time.time_ns() % 10_000, SHORT, each=False)


@pytest.mark.slow  # one of `--minutes`
def test_nothing_is_lost_or_doubled_in_a_kafka_campaign(minutes: float) -> None:
    campaign(time.time_ns() % 10_000, 60 * minutes, each=True)
