"""`pledger kafka broker` and `check`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from consumers.kafka.broker.layout import free_ports
from tests.fork_server import python
from tests.kafka.conftest import SharedBroker
from tests.kafka.test_broker import make_topic

ROOT = Path(__file__).parents[2]
PLEDGER = ["-m", "gateway.cli.main", "kafka"]


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_KAFKA")}
    ways: dict[str, Any] = {"cwd": ROOT, "env": env | {"NO_COLOR": "1"} | variables, "text": True}
    return subprocess.run(
        [*python(), *PLEDGER, *words], check=False, capture_output=True, timeout=120, **ways
    )


def test_a_broker_runs_in_front_and_check_looks_at_it(tmp_path: Path, kafka_name: str) -> None:
    command = [sys.executable, *PLEDGER, "broker", "--root", str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout
            said = process.stdout.readline().strip()
            name, _, bootstrap = said.partition("=")
            assert name == "LEDGER_KAFKA"
            make_topic(bootstrap, f"{kafka_name}.jobs")
            checked = run("check", "--json", "--prefix", kafka_name, LEDGER_KAFKA=bootstrap)
            assert checked.returncode == 0, checked.stderr
            told = json.loads(checked.stdout)
            topic = {"topic": f"{kafka_name}.jobs", "partitions": 1, "copies": 1, "short": 0}
            assert told["topics"] == [topic]
            assert told["brokers"] == [{"id": 1, "address": bootstrap, "version": "4.3"}]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert run("check", LEDGER_KAFKA=bootstrap).returncode == 4


def test_check_shows_a_cluster(broker: SharedBroker) -> None:
    checked = run("check", "--kafka", broker.bootstrap, "--prefix", "absent")
    assert checked.returncode == 0, checked.stderr
    assert "(Kafka 4." in checked.stdout
    assert "none below absent." in checked.stdout


def test_check_says_why_a_cluster_cannot_be_used() -> None:
    (port,) = free_ports(1)
    checked = run("check", "--kafka", f"127.0.0.1:{port}")
    assert (checked.returncode, checked.stdout) == (4, "")
    assert checked.stderr.startswith(f"pledger: nobody listens on 127.0.0.1:{port}: start the broker")
    assert run("check").stderr.startswith("pledger: no Kafka cluster is named: give --kafka HOST:PORT")
    assert run("check", "--kafka", "kafka").returncode == 2
