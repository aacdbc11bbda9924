"""
The server is killed just after it answered the close of a client that ends: what did the client lose?

An unmodified client ran a flow of fifty tasks; it exits with 0, and the flow run reads Completed. Its 150
states of task runs went over one socket, whose answered close was the receipt.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from ledger.embedded import Embedded
from tests.prefect import servers
from tests.prefect.clients import PATIENCE, VERSIONS, play
from tests.prefect.killing_proxy import killing_proxy

ROUNDS: Final = 20
ROUNDS_OF_PREFECT: Final = 5


class Found(NamedTuple):
    """What a restarted server shows of a flow of fifty tasks."""

    flow_run: str
    task_runs: int
    states: int


WHOLE: Final = Found("COMPLETED", 50, 150)
Serve = Callable[[str], AbstractContextManager[servers.Server]]


def rounds(version: str, folder: Path, serve: Serve, many: int, settling: float = 0.0) -> Iterator[Found]:
    """Run the flow, kill the server at the answered close, start it again and look: so many times."""
    with ExitStack() as running, ThreadPoolExecutor(1) as pool:
        server = running.enter_context(serve("0"))
        for nth in range(1, many + 1):
            kill = partial(os.killpg, server.pid, signal.SIGKILL)
            with killing_proxy(server.url, kill) as proxy:
                client = pool.submit(play, version, "fifty_tasks.py", folder / f"client {nth}", proxy.url)
                assert proxy.acted.wait(PATIENCE), "the client did not close its socket"
                running.close()
                server = running.enter_context(serve(f"{nth}"))
                proxy.to(server.url)  # for what the client still logs
                ended = client.result()
                assert ended.code == 0, ended.said[-3000:]
            time.sleep(settling)
            yield found(server.url, ended.report["flow_run"])


def found(url: str, flow_run: str) -> Found:
    """What the server shows of a flow run."""
    with httpx.Client(base_url=url, timeout=60) as api:
        state = api.get(f"/flow_runs/{flow_run}").raise_for_status().json()["state_type"]
        wanted = {"flow_runs": {"id": {"any_": [flow_run]}}, "limit": 200}
        runs = api.post("/task_runs/filter", json=wanted).raise_for_status().json()
        states = [
            len(api.get("/task_run_states/", params={"task_run_id": run["id"]}).raise_for_status().json())
            for run in runs
        ]
    return Found(state, len(runs), sum(states))


@pytest.mark.slow
def test_no_state_is_lost_after_a_receipt(
    version: str, postgres: Embedded, template: str, tmp_path: Path
) -> None:
    with servers.database(postgres, template) as dsn:
        serve = lambda nth: servers.ours(dsn, tmp_path / f"server {nth}")  # noqa: E731
        looks = list(rounds(version, tmp_path, serve, ROUNDS))
    print(f"\nclient {version}: {looks.count(WHOLE)} of {ROUNDS} rounds whole")
    assert looks == [WHOLE] * ROUNDS


@pytest.mark.slow
def test_control_prefect_s_own_server_loses_states(version: str, tmp_path: Path) -> None:
    """The same on Prefect's server: it is what the receipt is worth there, and that the test can fail."""
    with servers.postgres_for_prefect(durable=True) as own, servers.database(own) as dsn:
        serve = lambda nth: servers.own(VERSIONS[0], dsn, tmp_path / f"server {nth}")  # noqa: E731
        looks = list(rounds(version, tmp_path, serve, ROUNDS_OF_PREFECT, settling=5.0))
    print(f"\nclient {version}: Prefect's own server kept {looks}")
    assert [one.flow_run for one in looks] == ["COMPLETED"] * ROUNDS_OF_PREFECT
    assert looks != [WHOLE] * ROUNDS_OF_PREFECT
