"""Leases of stages: one runner has one, and learns when its claim is over, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.builds.presence import Presence
from consumers.builds.stage_leases import StageLease, StageLeases
from ledger import Ledger
from ledger.builds import OpenStage


@pytest.fixture
def two(log: Ledger, tmp_path: Path) -> Iterator[list[StageLeases]]:
    """The leases of two runners in one folder."""
    presences = [Presence(tmp_path, f"run {number}") for number in range(2)]
    leases = [StageLeases(log, tmp_path, presence, ()) for presence in presences]
    yield leases
    for one in leases:
        one.close()
    for presence in presences:
        presence.close()


def test_a_claim_is_lost_when_another_takes_it_over_and_not_before(
    log: Ledger, two: list[StageLeases]
) -> None:
    first, second = two
    stream, lost = OpenStage.name_of("p", "a"), list[str]()
    lease = first.take(stream, 1, lambda: lost.append("lost"))
    assert isinstance(lease, StageLease)
    first.renew()  # between the lease and the claim, as the thread may do it at any time
    assert second.take(stream, 1, list) == first.runner
    with log.open(OpenStage, "p", "a") as stage:
        stage.claim(first.runner)
    first.hold(lease)
    first.renew()
    assert lost == []
    with log.open(OpenStage, "p", "a") as stage:
        stage.claim(second.runner, take_over=True)
    first.renew()
    assert lost == ["lost"]


def test_a_lease_that_was_given_back_is_free(two: list[StageLeases]) -> None:
    first, second = two
    lease = first.take("build_stage/p/a", 1, list)
    assert isinstance(lease, StageLease)
    first.give_back(lease)
    assert isinstance(second.take("build_stage/p/a", 1, list), StageLease)
