"""The server is killed again and again while a client runs a hundred flows: all that it knows is there."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import ledger
from ledger import Ledger
from ledger.embedded import Embedded
from ledger.runs.limit import Limit, OpenLimit, evolve_limit
from ledger.runs.names import Names
from tests.prefect import servers
from tests.prefect.clients import play
from tests.prefect.killing_proxy import KillingProxy, killing_proxy

FLOWS: Final = 100
LONGEST: Final = 20.0
"""Seconds that a server lives, at most."""
PATIENCE: Final = 1800.0
"""Seconds for the client, most of which it may wait for the server."""


class KilledAgain:
    """A server that is killed at random moments and started again, until `stop`. kills: how often."""

    def __init__(self, dsn: str, folder: Path, proxy: KillingProxy, chance: random.Random) -> None:
        self._dsn, self._folder, self._proxy, self._chance = dsn, folder, proxy, chance
        self.kills, self.stopped = 0, False

    def run(self) -> None:
        """Kill and start again."""
        while not self.stopped:
            with servers.ours(self._dsn, self._folder, "--port", "0") as server:
                self._proxy.to(server.url)
                end = time.monotonic() + self._chance.uniform(1.0, LONGEST)
                while time.monotonic() < end and not self.stopped:
                    time.sleep(0.02)
                if not self.stopped:
                    os.killpg(server.pid, signal.SIGKILL)
                    self.kills += 1


@contextmanager
def killed_again(
    dsn: str, folder: Path, url: str, chance: random.Random
) -> Iterator[tuple[str, KilledAgain]]:
    """The address of a server that dies and lives while the block runs."""
    with killing_proxy(url, lambda: None) as proxy, ThreadPoolExecutor(1) as pool:
        again = KilledAgain(dsn, folder, proxy, chance)
        running = pool.submit(again.run)
        try:
            yield proxy.url, again
        finally:
            again.stopped = True
            running.result()


@pytest.mark.slow
def test_what_a_client_knows_survives_kills_at_any_moment(
    version: str, postgres: Embedded, template: str, tmp_path: Path
) -> None:
    chance = random.Random()
    with servers.database(postgres, template) as dsn:
        with servers.ours(dsn, tmp_path / "first") as server, httpx.Client(base_url=server.url) as api:
            made = api.post("/v2/concurrency_limits/", json={"name": "slots", "limit": 4})
            assert made.status_code == 201, made.text
            nowhere = server.url
        with killed_again(dsn, tmp_path / "server", nowhere, chance) as (url, again):
            ended = play(version, "many_flows.py", tmp_path / "client", url, patience=PATIENCE)
        assert ended.code == 0, ended.said[-6000:]
        print(f"\nclient {version}: {again.kills} kills, {len(ended.report['tasks'])} task runs")
        assert again.kills > 3
        with servers.ours(dsn, tmp_path / "last") as server, httpx.Client(base_url=server.url) as api:
            assert ended.report["flows"] == ["COMPLETED"] * FLOWS
            assert missing(api, ended.report["tasks"]) == {}
            assert unended(api) == []
        with ledger.connect(dsn) as log:
            assert slots(log) == slots(log, folded=True)


def missing(api: httpx.Client, known: dict[str, str]) -> dict[str, Any]:
    """The task runs that the server knows otherwise than the client does."""
    found: dict[str, str] = {}
    ids = list(known)
    for nth in range(0, len(ids), 100):
        wanted = {"task_runs": {"id": {"any_": ids[nth : nth + 100]}}, "limit": 200}
        runs = api.post("/task_runs/filter", json=wanted, timeout=60).raise_for_status().json()
        found |= {run["id"]: run["state_type"] for run in runs}
    return {id: (state, found.get(id)) for id, state in known.items() if found.get(id) != state}


def unended(api: httpx.Client) -> list[Any]:
    """Flow runs that did not end, but for those whose creation was answered to nobody: they never began."""
    wanted = {"flow_runs": {"state": {"type": {"not_any_": ["COMPLETED", "FAILED"]}}}, "limit": 200}
    runs = api.post("/flow_runs/filter", json=wanted, timeout=60).raise_for_status().json()
    return [(run["name"], run["state_name"]) for run in runs if run["state_type"] != "PENDING"]


def slots(log: Ledger, *, folded: bool = False) -> Limit:
    """The slots of the limit that are taken, and by whom: as they are stored, or folded from all events."""
    id = Names(log).holder("concurrency_limit", "slots")
    assert id is not None
    if not folded:
        return log.load(OpenLimit, id).state
    state = OpenLimit.initial(id)
    for event in log.read(OpenLimit.name_of(id)):
        assert not isinstance(event.event, str)
        state = evolve_limit(state, event.event, event.recorded_at)
    return state
