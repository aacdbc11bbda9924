"""Channels with strips, what was recorded of their readiness, and what should have been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from consumers.pipelines import readiness
from ledger import Ledger
from ledger.pipelines import LSMChannelState, LSMProjectState, LSMStateService, LSMStripState
from tests.consumers import oracle


class Lab:
    """A ledger in which strips are made and marked, and its readiness looked at."""

    def __init__(self, log: Ledger, dsn: str) -> None:
        self.log, self.dsn = log, dsn
        self.service = LSMStateService(log)

    def build(self, strips: int = 2, channels: int = 1, plan: int | None = None, project: str = "p") -> None:
        """Channels 1 … of slice 1, each with strips 1 … ; perhaps a plan. All in one append."""
        with self.service.open_project(project) as opened:
            for channel_id in range(1, channels + 1):
                channel = opened.get_or_create_channel(1, channel_id)
                for strip_id in range(1, strips + 1):
                    channel.get_or_create_strip(strip_id)
            if plan is not None:
                opened.plan(strips_per_slice=plan)

    @contextmanager
    def strip(self, strip_id: int, channel_id: int = 1, project: str = "p") -> Iterator[LSMStripState]:
        with self.log.open(LSMStripState, project, 1, channel_id, strip_id) as strip:
            yield strip

    def compress(self, *strip_ids: int, channel_id: int = 1, project: str = "p") -> None:
        for strip_id in strip_ids:
            with self.strip(strip_id, channel_id, project) as strip:
                strip.set_compressed()

    def plan(self, total: int | None, project: str = "p") -> None:
        with self.log.open(LSMProjectState, project) as opened:
            opened.plan(strips_per_slice=total)

    def channel(self, channel_id: int = 1) -> LSMChannelState:
        return self.log.load(LSMChannelState, "p", 1, channel_id)

    def rounds(self, default: int | None = None, *, caught_up: bool = False) -> list[str]:
        """The channels of the recorded rounds, after the reactor has caught up; as the oracle says."""
        if not caught_up:
            readiness(self.log, strips_per_slice=default).catch_up()
        log = oracle.rows(self.dsn)
        found = oracle.recorded(log)
        assert found == oracle.expected(log, default)
        return [channel for _, channel in found]


@pytest.fixture
def lab(log: Ledger, dsn: str) -> Lab:
    return Lab(log, dsn)


@pytest.fixture
def another(dsn: str) -> Iterator[Callable[[], Ledger]]:
    """Opens further ledgers on the same database, as other processes have them."""
    import ledger

    opened: list[Ledger] = []

    def connect() -> Ledger:
        opened.append(ledger.connect(dsn, actor="another"))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()
