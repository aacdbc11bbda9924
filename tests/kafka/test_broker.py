"""The broker of tests and demos: ready means ready, faults are real, and no process outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from consumers.kafka.broker import Broker
from ledger.errors import KafkaUnavailable
from tests.kafka.conftest import SharedBroker, using

ROOT = Path(__file__).parents[2]
LIMIT = 120.0
QUICK = {"request_timeout_ms": 3000}
"""By default a client waits 30 s for the answer of a node that is frozen."""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def connected(kind: Any, bootstrap: str, **options: Any) -> Any:
    """A client. One that asks a frozen node first gives up after seconds, and the next may ask another."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return kind(bootstrap_servers=bootstrap, bootstrap_timeout_ms=5000, **QUICK, **options)
        except KafkaTimeoutError:
            assert time.monotonic() < deadline, f"no node of {bootstrap} answers"


def make_topic(bootstrap: str, name: str, copies: int = 1) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap, **QUICK) as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=1, replication_factor=copies)])


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = connected(KafkaProducer, bootstrap, acks="all", retries=100)
    for sent in [producer.send(topic, value=value) for value in values]:
        sent.get(timeout=60)
    producer.close()


def read(bootstrap: str, topic: str, many: int) -> list[bytes]:
    consumer = connected(KafkaConsumer, bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found: list[bytes] = []
    wait_for(lambda: bool(_poll(consumer, found)) or len(found) >= many, f"{many} records of {topic}")
    while len(found) < many:
        _poll(consumer, found)
    consumer.close()
    return found


def _poll(consumer: KafkaConsumer, found: list[bytes]) -> int:
    batches = consumer.poll(timeout_ms=200).values()
    found += [record.value for batch in batches for record in batch]
    return len(batches)


def test_the_shared_broker_keeps_records(broker: SharedBroker, kafka_name: str) -> None:
    make_topic(broker.bootstrap, kafka_name)
    send(broker.bootstrap, kafka_name, b"a", b"b")
    assert read(broker.bootstrap, kafka_name, 2) == [b"a", b"b"]


@pytest.mark.slow  # the campaign of each run does the same
def test_a_root_keeps_records_and_ports_for_the_next_start(tmp_path: Path) -> None:
    with Broker(root=tmp_path / "kept") as first:
        make_topic(first.bootstrap, "kept")
        send(first.bootstrap, "kept", b"first")
        first.kill(1)
        first.start(1)
        send(first.bootstrap, "kept", b"after a kill")
    with Broker(root=tmp_path / "kept") as second:
        assert second.bootstrap == first.bootstrap
        assert read(second.bootstrap, "kept", 2) == [b"first", b"after a kill"]
        with pytest.raises(KafkaUnavailable, match="another process runs the broker in"):
            Broker(root=tmp_path / "kept").__enter__()
    with pytest.raises(KafkaUnavailable, match="keeps a cluster of 1 nodes"):
        Broker(nodes=3, root=tmp_path / "kept").__enter__()


HOLDS = """
import psutil, sys, time
from pathlib import Path
from consumers.kafka.broker.process import NodeProcess
nodes = [NodeProcess(["sleep", "60"], Path(sys.argv[1]) / "out") for _ in range(2)]
while not all(psutil.Process(node.pid).children() for node in nodes):  # the reader beside each node
    time.sleep(0.01)
nodes[1].freeze()
print(*(node.pid for node in nodes), flush=True)
time.sleep(60)
"""


def test_no_process_of_a_node_outlives_a_killed_parent(tmp_path: Path) -> None:
    """Neither of one that runs nor of one that is frozen. Any program is a node here."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        groups = [each for each in psutil.process_iter() if os.getpgid(each.pid) in pids]
        assert len(groups) >= 4  # each node, and the reader beside it
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(_runs(each) for each in groups), "the processes end")


USES = """
import sys, time
from pathlib import Path
from tests.kafka.conftest import using
with using(Path(sys.argv[1])) as address:
    print(address, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_the_shared_broker_ends_with_its_last_user(tmp_path: Path) -> None:
    """However they end; and who comes afterwards gets a new one."""
    command = [sys.executable, "-c", USES, str(tmp_path)]
    users = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    addresses = {user.stdout.readline().strip() for user in users if user.stdout}
    assert len(addresses) == 1
    for user in users:
        user.kill()
        user.communicate()
    host, _, port = addresses.pop().partition(":")
    wait_for(lambda: _is_free(host, int(port)), "the broker ends")
    with using(tmp_path) as address:
        make_topic(address, "anew")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_java_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("consumers.kafka.broker.java.find_spec", lambda _: None)
    with pytest.raises(KafkaUnavailable, match=r"needs Java 17 or newer, and .*java is Java 11\.0\.2"):
        Broker(root=tmp_path).__enter__()
