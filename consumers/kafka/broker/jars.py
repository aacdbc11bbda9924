"""The broker's jars: the 46 of jars.lock, fetched once by Maven or `jgo`, kept in a cache of this user."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from consumers.kafka.broker.java import Java
from ledger.errors import KafkaUnavailable

HERE = Path(__file__).resolve().parent
LOCK = HERE / "jars.lock"
LONGEST_FETCH = 600.0
"""Seconds after which a fetch is given up."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of jars.lock: the SHA-256 of a jar, and its Maven coordinates GROUP:ARTIFACT:VERSION."""

    digest: str
    coordinates: str

    @property
    def name(self) -> str:
        """The name of its file."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> Path:
        """Where a Maven repository has it."""
        group, artifact, version = self.coordinates.split(":")
        return Path(*group.split("."), artifact, version, self.name)


def locked_jars() -> list[Jar]:
    """The jars, in the order of their files' names: an archive of classes fits one order only."""
    jars = [Jar(*line.split()) for line in LOCK.read_text().splitlines()]
    return sorted(jars, key=lambda jar: jar.name)


def mark() -> str:
    """Twelve digits that differ for another set of jars."""
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]


def cache_folder() -> Path:
    """The folder of the jars: LEDGER_KAFKA_CACHE, else `ledger/kafka` in the user's cache."""
    if named := os.environ.get("LEDGER_KAFKA_CACHE"):
        return Path(named).expanduser().absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ledger" / "kafka"
    except RuntimeError:
        raise KafkaUnavailable(
            "this user has no home folder: set LEDGER_KAFKA_CACHE to a folder for the jars of Kafka"
        ) from None


@contextmanager
def locked(name: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock of the cache. Raises BlockingIOError if `how` has LOCK_NB and it is taken."""
    with (cache_folder() / name).open("a") as file:
        fcntl.flock(file, how)
        yield


def fetched_jars(java: Java, tell: Callable[[str], object]) -> list[Path]:
    """The class path. Of several processes one fetches and the others wait; it is there whole or not at all.

    Raises KafkaUnavailable if the jars cannot be fetched, or are not those of jars.lock.
    """
    folder, jars = cache_folder() / f"jars-{mark()}", locked_jars()
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked("fetch.lock"):
                if not folder.exists():
                    tell(f"fetching the {len(jars)} jars of Apache Kafka into {folder.parent}, once")
                    _fetch(jars, java, folder)
        except OSError as error:
            raise KafkaUnavailable(
                f"the jars of Kafka cannot be kept in {folder.parent}: {error.strerror or error}; "
                "set LEDGER_KAFKA_CACHE to another folder"
            ) from error
    return [folder / jar.name for jar in jars]


def _fetch(jars: list[Jar], java: Java, folder: Path) -> None:
    for partial in folder.parent.glob("partial-*"):  # of a process that was killed; we hold the lock
        shutil.rmtree(partial, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        fresh = partial / "jars"
        fresh.mkdir()
        _by_any_tool(jars, java, partial)
        for jar in jars:
            if hashlib.sha256((fresh / jar.name).read_bytes()).hexdigest() != jar.digest:
                raise KafkaUnavailable(f"{jar.coordinates} was fetched, but its hash is not that of {LOCK}")
        fresh.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _by_any_tool(jars: list[Jar], java: Java, partial: Path) -> None:
    """Copy the jars into `partial/jars` by the first tool that can."""
    tools = {"mvn": _by_maven} if shutil.which("mvn") else {}
    tools |= {"jgo": _by_jgo} if find_spec("jgo") else {}
    failed = []
    for name, tool in tools.items():
        try:
            tool(jars, java, partial)
        except subprocess.TimeoutExpired:
            failed.append(f"{name} took longer than {LONGEST_FETCH:g} s")
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: {_last_line(error.stdout)}")
        else:
            return
    why = "; ".join(failed) or "neither Maven nor jgo is installed (pip install 'jgo[cli]')"
    raise KafkaUnavailable(f"the jars of Kafka cannot be fetched: {why}")


def _by_maven(jars: list[Jar], java: Java, partial: Path) -> None:
    command: list[str | Path] = ["mvn", "-B", "-q", "-f", HERE / "pom.xml", f"-Dout={partial / 'jars'}"]
    _run([*command, "dependency:copy-dependencies"], java)


def _by_jgo(jars: list[Jar], java: Java, partial: Path) -> None:
    """All coordinates are named, because jgo resolves some to other versions than Maven."""
    repository = partial / "repository"
    repository.mkdir()
    command: list[str | Path] = [sys.executable, "-m", "jgo", "--resolver", "python"]
    command += ["--repo-cache", repository, "--cache-dir", partial / "jgo", "info", "classpath"]
    _run([*command, "+".join(jar.coordinates for jar in jars)], java)
    for jar in jars:
        try:
            shutil.copy(repository / jar.path, partial / "jars")
        except FileNotFoundError:
            raise KafkaUnavailable(f"jgo did not fetch {jar.coordinates}") from None


def _run(command: list[str | Path], java: Java) -> None:
    """Run it with this Java: jgo would download another one."""
    env = os.environ | {"JAVA_HOME": str(java.home)}
    subprocess.run(
        command, check=True, env=env, timeout=LONGEST_FETCH, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _last_line(said: str | None) -> str:
    lines = [line.strip() for line in (said or "").splitlines() if line.strip()]
    telling = [line for line in lines if "ERROR" in line]
    return (telling[:1] or lines[-1:] or ["it failed and said nothing"])[0][:300]
