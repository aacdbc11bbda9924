"""A worker whose server is away: told to stop it ends, soon, and says what it could not tell."""

from __future__ import annotations

import signal
import subprocess

import pytest

from ledger import connect
from ledger.embedded import throwaway
from ledger.jobs import Jobs
from tests.gateway.conftest import environment, forked
from tests.jobs.conftest import eventually

RUN = (
    "worker",
    "run",
    "--operations",
    "tests.jobs.operations",
    "--drain-seconds",
    "1",
    "--lease-seconds",
    "3",
)


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_while_the_server_is_away_ends() -> None:
    """Also where it has a job, which it can neither finish nor give back: that its lease will tell."""
    with throwaway() as server:
        dsn = server.dsn()
        with connect(dsn, actor="x", create=True) as log:
            job = Jobs(log).submit("slow")
            worker = subprocess.Popen(
                [*forked(), *RUN], env=environment(LEDGER_DSN=dsn), stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            try:
                eventually(lambda: "job.reported" in [event.topic for event in Jobs(log).events(job)], 60)
                server.stop(immediate=True)
                worker.send_signal(signal.SIGTERM)
                _, said = worker.communicate(timeout=60)  # once it was 150 s
            finally:
                worker.kill()
                worker.communicate()
        assert "could not give back its claims" in said
        assert worker.returncode == 143
