"""A client of another kind, librdkafka, reads what the relay publishes, by the code of the page."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from consumers.kafka.cluster import Cluster
from ledger import Ledger
from ledger.jobs import Jobs
from tests.docs.pages import ROOT, blocks
from tests.kafka.conftest import SharedBroker
from tests.kafka.relaying import relay_all

PAGE = ROOT / "docs" / "how-to" / "consume-in-another-language.md"


def test_librdkafka_by_the_page(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    """Given the topic of jobs, then the page's consumer prints each event, and finds the chain whole."""
    jobs = Jobs(log)
    for n in range(20):
        jobs.cancel(jobs.submit("ping", {"n": n}))
    relay_all(log, Cluster.of(broker.bootstrap), kafka_name, block_events=7)
    (code,) = [block.text for block in blocks(PAGE.read_text()) if block.kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"LEDGER_KAFKA": broker.bootstrap, "TOPIC": f"{kafka_name}.jobs"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = [line.split(" ", 3) for line in done.stdout.splitlines()]
    recorded = [(event.stream, str(event.version), event.topic) for event in log.log(0, log.bound(), 1000)]
    assert sorted((stream, version, topic) for stream, version, topic, _ in read) == sorted(recorded)


def test_kcat_by_the_page(log: Ledger, broker: SharedBroker, kafka_name: str) -> None:
    """Where kcat is installed (`apt install kcat`), the page's command prints keys, headers and bodies."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    jobs = Jobs(log)
    for n in range(5):
        jobs.submit("ping", {"n": n})
    relay_all(log, Cluster.of(broker.bootstrap), kafka_name)
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("$ kcat ")]
    told = {"localhost:9092": broker.bootstrap, "ledger.jobs": f"{kafka_name}.jobs"}
    words = [told.get(word, word) for word in shlex.split(line[2:])]
    done = subprocess.run([*words, "-e"], capture_output=True, text=True, timeout=60, check=True)
    keys = [word.split(" ")[0] for word in done.stdout.splitlines()[::2]]
    assert sorted(keys) == sorted(event.stream for event in log.log(0, log.bound(), 1000))
