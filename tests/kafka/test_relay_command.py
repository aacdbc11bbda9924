"""`pledger relay run`, `status` and `replay`, and the metrics of a relay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from consumers.kafka.cluster import Cluster
from consumers.kafka.relay.relay import Relay
from consumers.kafka.relay.status import MAX_COUNTED, RelayMetrics, lag_of, relay_status
from ledger import Ledger
from projections.metrics_server import serving
from tests.fork_server import python
from tests.kafka.conftest import SharedBroker
from tests.kafka.reading import assert_published, records, topics_below
from tests.kafka.test_relay import LIMIT, NEVER, fill, relay_of

ROOT = Path(__file__).parents[2]
PLEDGER = ["-m", "gateway.cli.main", "relay"]


def environment(dsn: str, broker: SharedBroker) -> dict[str, str]:
    return os.environ | {"LEDGER_DSN": dsn, "LEDGER_KAFKA": broker.bootstrap, "NO_COLOR": "1"}


def pledger(dsn: str, broker: SharedBroker, *words: str, code: int = 0) -> Any:
    """The JSON that a command printed."""
    ran = subprocess.run(
        [*python(), *PLEDGER, *words, "--json"], cwd=ROOT, env=environment(dsn, broker), text=True,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout if code == 0 else ran.stderr.splitlines()[-1])


@pytest.mark.long
def test_it_publishes_tells_and_publishes_anew(
    dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    assert pledger(dsn, broker, "status", "--prefix", kafka_name, code=3)["error"] == "NotThere"
    middle, end = fill(log, 60), fill(log, 60)
    ran = pledger(dsn, broker, "run", "--once", "--prefix", kafka_name, "--partitions", "2")
    assert ran | {"blocks": 0} == {
        "relay": "main", "prefix": kafka_name, "position": end, "events": 120, "blocks": 0, "lives": 1,
    }  # fmt: skip
    assert_published(log, broker.bootstrap, kafka_name)
    fill(log, 20, "job")
    told = pledger(dsn, broker, "status", "--prefix", kafka_name)
    assert (told["position"], told["published"], told["lag_events"], told["elected"]) == (end, 120, 20, None)
    assert told["topics"] == [
        {"topic": f"{kafka_name}.jobs", "partitions": 2, "records": 60},
        {"topic": f"{kafka_name}.payment", "partitions": 2, "records": 60},
    ]
    again = f"{kafka_name}-again"
    pledger(dsn, broker, "replay", "--prefix", again, "--from-position", str(middle))
    assert_published(log, broker.bootstrap, again, after=middle)
    mismatch = pledger(dsn, broker, "run", "--once", "--prefix", again, code=1)
    assert mismatch["error"] == "TopicMismatch"
    assert mismatch["parts"]["topic"] == again


def test_a_replay_begins_at_a_time(dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    fill(log, 40, "job")
    with log.reader() as connection:
        (moment,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
    fill(log, 20, "job")
    pledger(dsn, broker, "replay", "--prefix", kafka_name, "--from-time", moment.isoformat())
    assert len(records(broker.bootstrap, *topics_below(broker.bootstrap, kafka_name))) == 20
    wrong = pledger(
        dsn, broker, "replay", "--prefix", kafka_name, "--from-time", "now", "--from-position", "1", code=2
    )
    assert "give one of them" in wrong["message"]


def test_a_running_relay_serves_metrics_and_ends_on_sigterm(
    dsn: str, log: Ledger, broker: SharedBroker, kafka_name: str
) -> None:
    end = fill(log, 40, "job")
    command = [sys.executable, *PLEDGER, "run", "--prefix", kafka_name, "--metrics-port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(dsn, broker), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            address = next(line.split()[-1] for line in process.stderr if "metrics are at" in line)
            deadline = time.monotonic() + LIMIT
            while f"pledger_relay_position{{{labels(kafka_name)}}} {end}.0" not in (told := read(address)):
                assert time.monotonic() < deadline, told
                time.sleep(0.05)
            assert f"pledger_relay_lag_events{{{labels(kafka_name)}}} 0.0" in told
            elected = pledger(dsn, broker, "status", "--prefix", kafka_name)["elected"]
            assert elected.split("/")[1] == str(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert json.loads(out)["events"] == 40
    assert pledger(dsn, broker, "status", "--prefix", kafka_name)["elected"] is None


def labels(prefix: str) -> str:
    return f'prefix="{prefix}",schema="ledger"'


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


def test_metrics_are_there_before_it_runs(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    relay: Relay = relay_of(log, broker, kafka_name)
    fill(log, 40, "job")
    with serving(RelayMetrics(relay), 0) as port:
        address = f"http://127.0.0.1:{port}/metrics"
        assert f"pledger_relay_lag_events{{{labels(kafka_name)}}} 40.0" in read(address)
        relay.run(NEVER, until=lag_of(log, 0).last)
        assert f"pledger_relay_events_total{{{labels(kafka_name)}}} 40.0" in read(address)
    assert relay_status(log, Cluster.of(broker.bootstrap), f"{kafka_name}-none") is None


def test_the_lag_beyond_what_is_counted_is_the_difference(log: Ledger) -> None:
    assert lag_of(log, 0) == (0, 0, 0.0)
    end = fill(log, 20, "job")
    found = lag_of(log, -MAX_COUNTED)
    assert (found.last, found.events) == (end, 20)
    assert found.seconds >= 0


def test_a_cluster_that_is_away_is_told(dsn: str, kafka_name: str) -> None:
    nobody = SharedBroker("127.0.0.1:1")
    assert pledger(dsn, nobody, "status", "--prefix", kafka_name, code=4)["error"] == "KafkaUnavailable"
    assert pledger(dsn, nobody, "replay", "--prefix", "a b", code=2)["error"] == "BadName"
