"""The jars are fetched once, whole or not at all, and are those of the lock. Here `mvn` copies real ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from consumers.kafka.broker import jars
from consumers.kafka.broker.java import find_java
from ledger.errors import KafkaUnavailable
from tests.fork_server import python
from tests.kafka.conftest import SharedBroker

ROOT = Path(__file__).parents[2]
FETCH = """
from consumers.kafka.broker import jars
from consumers.kafka.broker.java import find_java
print(len(jars.fetched_jars(find_java(), lambda _: None)))
"""
MAVEN = """#!/bin/sh
for word; do case $word in -Dout=*) out=${word#-Dout=};; esac; done
echo fetched >> %(folder)s/count
cp %(jars)s/*.jar "$out"
%(then)s
"""


class Fetching:
    """A cache of a test's own, and a `mvn` that fills it."""

    def __init__(self, folder: Path, real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.real, self.cache = folder, real, folder / "cache"
        monkeypatch.setenv("LEDGER_KAFKA_CACHE", str(self.cache))
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        self.maven("")

    def maven(self, then: str) -> None:
        """Write the program. then: what it does after it copied."""
        program = self.folder / "mvn"
        program.write_text(MAVEN % {"folder": self.folder, "jars": self.real, "then": then})
        program.chmod(0o755)

    def fetches(self) -> int:
        """How often it ran."""
        return len((self.folder / "count").read_text().splitlines())


@pytest.fixture
def fetching(broker: SharedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetching:
    """The shared broker has fetched the real jars."""
    real = jars.cache_folder() / f"jars-{jars.mark()}"
    if not real.exists():
        pytest.skip("LEDGER_KAFKA names a cluster, so no jars are here")
    return Fetching(tmp_path, real, monkeypatch)


def test_of_many_processes_one_fetches(fetching: Fetching) -> None:
    fetching.maven("sleep 0.3")
    command = [*python(), "-c", FETCH]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[0].strip() for each in running] == ["46"] * 3
    assert fetching.fetches() == 1


def test_a_jar_that_is_not_that_of_the_lock_is_refused(fetching: Fetching) -> None:
    fetching.maven('echo changed >> "$out/lz4-java-1.10.2.jar"')
    with pytest.raises(KafkaUnavailable, match=r"at\.yawk\.lz4:lz4-java:1\.10\.2 was fetched, but its hash"):
        jars.fetched_jars(find_java(), lambda _: None)
    assert [path.name for path in fetching.cache.iterdir()] == ["fetch.lock"]


def test_a_fetch_that_was_killed_leaves_nothing_that_counts(fetching: Fetching) -> None:
    fetching.maven("kill -9 $PPID")
    done = subprocess.run([*python(), "-c", FETCH], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert not (fetching.cache / f"jars-{jars.mark()}").exists()
    fetching.maven("")
    assert all(jar.exists() for jar in jars.fetched_jars(find_java(), lambda _: None))
    assert sorted(path.name for path in fetching.cache.iterdir()) == ["fetch.lock", f"jars-{jars.mark()}"]


def test_why_they_cannot_be_fetched_is_said(
    fetching: Fetching, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("consumers.kafka.broker.jars.find_spec", lambda _: None)
    fetching.maven("echo '[ERROR] repository is away'; exit 1")
    with pytest.raises(KafkaUnavailable, match=r"cannot be fetched: mvn: \[ERROR\] repository is away"):
        jars.fetched_jars(find_java(), lambda _: None)
    monkeypatch.setattr("consumers.kafka.broker.jars.shutil.which", lambda _: None)
    java = find_java()
    with pytest.raises(KafkaUnavailable, match="neither Maven nor jgo is installed"):
        jars.fetched_jars(java, lambda _: None)
    (tmp_path / "file").touch()
    monkeypatch.setenv("LEDGER_KAFKA_CACHE", str(tmp_path / "file"))
    with pytest.raises(KafkaUnavailable, match="set LEDGER_KAFKA_CACHE to another folder"):
        jars.fetched_jars(java, lambda _: None)
