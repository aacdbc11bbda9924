"""`pledger consume` and `pledger dlq`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest

from consumers.kafka import MemoryBus
from gateway.cli.main import main
from tests.fork_server import python
from tests.kafka.conftest import SharedBroker

from .oracle import effects, make_table
from .publishing import Publisher
from .test_consumer import LIMIT, failing, until

ROOT = Path(__file__).parents[2]
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def pledger(dsn: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; returns the JSON Lines of stdout. code: how it must end."""

    def run(*words: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        ended = main(["--dsn", dsn, *words, "--json"])
        out, err = capsys.readouterr()
        assert ended == code, err
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture
def dead(dsn: str) -> str:
    """The id of a dead letter of group `some`, behind which two events wait."""
    make_table(dsn)
    bus = MemoryBus(partitions=1)
    for nr in range(6):
        bus.publish(f"lsm.strip/{nr % 2}", "lsm.strip.completed", {"n": nr})
    bus.drain(failing("ledger.lsm", "some", {2}, attempts=1), dsn)
    return "ledger.lsm/0/1"


def test_dead_letters_are_listed_and_shown(pledger: Run, dead: str) -> None:
    (row,) = pledger("dlq", "list")
    assert (row["id"], row["group"], row["key"], row["behind"]) == (dead, "some", "lsm.strip/1", 2)
    assert (row["error"], row["message"], row["attempts"]) == ("RuntimeError", "position 2", 1)
    assert [one["state"] for one in pledger("dlq", "list", "--all")] == ["dead", "behind", "behind"]
    assert pledger("dlq", "list", "--group", "other") == []
    (shown,) = pledger("dlq", "show", "some", dead)
    assert shown["value"] == '{"n":1}'
    assert shown["headers"]["ce_type"] == "lsm.strip.completed"
    assert "RuntimeError: position 2" in shown["trace"]
    pledger("dlq", "show", "some", "ledger.lsm/0/77", code=3)
    pledger("dlq", "show", "some", "ledger.lsm", code=2)


def test_dead_letters_are_redriven_and_discarded(pledger: Run, dead: str) -> None:
    (row,) = pledger("dlq", "redrive", "some", "--error", "RuntimeError")
    assert row["redriven"] is False
    (row,) = pledger("dlq", "redrive", "some", dead, "--yes")
    assert row["redriven"] is True
    assert pledger("dlq", "list") == []
    (waiting, *_) = pledger("dlq", "list", "--all")
    assert (waiting["state"], waiting["attempts"]) == ("waiting", 0)
    (row,) = pledger("dlq", "discard", "some", dead, "--yes")
    assert row["discarded"] is False


def test_groups_are_listed(pledger: Run, dead: str) -> None:
    (row,) = pledger("consume", "list")
    assert (row["group"], row["topic"], row["partition"], row["next_offset"]) == ("some", "ledger.lsm", 0, 6)
    assert (row["waiting"], row["behind"], row["dead"]) == (0, 2, 1)


def test_a_database_without_consumers_is_refused(pledger: Run) -> None:
    assert pledger("dlq", "list", code=4) == []


def test_what_is_no_handler_is_refused(pledger: Run) -> None:
    pledger("consume", "run", "tests.kafka.oracle:writer", "--kafka", "localhost:1", code=2)
    pledger("consume", "run", "tests.kafka.oracle", "--kafka", "localhost:1", code=2)


@contextmanager
def consuming(dsn: str, broker: SharedBroker, module: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pledger consume run` of the handler in a module, and the address of its metrics."""
    words = ["--dsn", dsn, "consume", "run", f"{module.stem}:count", "--kafka", broker.bootstrap, "--json"]
    with subprocess.Popen(
        [*python(), "-m", "gateway.cli.main", *words, "--metrics-port", "0"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(module.parent)},
    ) as process:  # fmt: skip
        try:
            assert process.stderr
            said = iter(process.stderr)
            address = next(word for line in said for word in line.split() if "/metrics" in word)
            yield process, address.partition("/metrics")[0].rpartition("http")[2]
        finally:
            process.kill()


def test_a_consumer_runs_and_its_group_is_rewound(
    broker: SharedBroker, kafka_name: str, dsn: str, pledger: Run, tmp_path: Path
) -> None:
    make_table(dsn)
    topic, module = f"{kafka_name}.lsm", tmp_path / f"handlers_{os.getpid()}.py"
    module.write_text(
        f"from tests.kafka.oracle import writer\ncount = writer({topic!r}, {kafka_name!r})\n",
        encoding="utf-8",
    )
    from consumers.kafka import Cluster

    rewind = ["consume", "rewind", kafka_name, topic, "--to-position", "31", "--kafka", broker.bootstrap]
    with Publisher(Cluster.of(broker.bootstrap), topic) as publisher:
        publisher.publish(f"lsm.strip/{nr % 8}" for nr in range(40))
    with consuming(dsn, broker, module) as (process, address):
        until(lambda: len(effects(dsn, kafka_name)) == 40)
        until(lambda: json.load(urlopen(f"http{address}/ready"))["ready"])
        assert b"pledger_consumer_processed_total" in urlopen(f"http{address}/metrics").read()
        pledger(*rewind, code=5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert json.loads(out) == {"group": kafka_name, "processed": 40, "failed": 0, "parked": 0}
    shown = pledger(*rewind)
    assert {row["done"] for row in shown} == {False}
    assert [{**row, "done": True} for row in shown] == pledger(*rewind, "--yes")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM effects")
    with consuming(dsn, broker, module):
        until(lambda: len(effects(dsn, kafka_name)) == 10)
