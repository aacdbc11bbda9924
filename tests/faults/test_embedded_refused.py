"""Places where no embedded server can be: one short sentence, whatever PostgreSQL and the system say."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ledger.embedded import Embedded
from ledger.embedded.account import LONGEST_REASON, Account, reason
from ledger.errors import ServerUnavailable, StorageFull
from tests.faults.conftest import CHILD_PATH, eventually, nothing_runs
from tests.fork_server import python

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, and mount")

# Root's interpreter and packages may be out of the user's reach: what is needed is loaded before the change.
AS_USER = """
import os, sys, encodings.idna
import psycopg
import gateway.cli.main, ledger.log.admin, ledger.log.health
from ledger.machines import Machine
uid = int(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sys.exit(gateway.cli.main.main(sys.argv[2:]))
"""
INITDB = """The files belonging to this database system will be owned by user "postgres".
creating configuration files ... ok
running bootstrap script ... 2026-11-22 10:41:56.661 UTC [8197] FATAL:  could not extend file "base/1/2691"
2026-11-22 10:41:56.661 UTC [8197] HINT:  Check free disk space.
initdb: removing contents of data directory"""


@pytest.fixture
def mounted(folder: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many megabytes; its folder."""
    folder = folder / "small"
    folder.mkdir()

    def mount(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=755", "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system can be mounted here")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@as_root
def test_a_disk_that_is_too_small_is_said_in_one_short_sentence(mounted: Callable[[int], Path]) -> None:
    home = mounted(20) / "home"
    with pytest.raises(StorageFull) as caught:
        Embedded(home, durable=False).acquire()
    free = shutil.disk_usage(home).free >> 20
    assert str(caught.value) == (
        f"{home} has {free} MB of free disk, and a new server needs 64 MB: free some space, or set LEDGER_"
        "HOME to another folder"
    )
    assert not (home / "data").exists()


@as_root
def test_a_server_that_finds_its_disk_full_says_so(mounted: Callable[[int], Path]) -> None:
    small = mounted(70)
    server = Embedded(small / "home", durable=False)
    server.acquire()
    server.stop()
    with (small / "filling").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(StorageFull, match=f"the disk of {server.home} is full: free some space, or set"):
        server.acquire(timeout=60)
    (small / "filling").unlink()
    assert server.acquire(timeout=60)
    server.release()
    eventually(lambda: nothing_runs(server.home))


def test_of_all_that_a_program_says_the_reason_is_shown() -> None:
    assert reason(INITDB).endswith('FATAL:  could not extend file "base/1/2691"')
    assert reason("first\ninitdb: error: no\nhint: yes") == "initdb: error: no"
    assert (reason("one\nlast"), reason("")) == ("last", "")
    assert len(reason("FATAL: " + "x" * 1000)) == LONGEST_REASON


def test_a_program_that_fails_is_one_sentence() -> None:
    ourselves = Account(os.geteuid(), os.getegid(), "this user")
    with pytest.raises(ServerUnavailable) as caught:
        ourselves.run("/bin/sh", "-c", "for n in 1 2 3 4; do echo line $n; done; echo FATAL: no; exit 3")
    assert str(caught.value) == "/bin/sh failed: FATAL: no"


@pytest.fixture
def ordinary_user() -> int:
    """Some user who is not root."""
    names = {entry.pw_name for entry in pwd.getpwall()} & {"nobody", "daemon", "games"}
    if not names:
        pytest.skip("this machine has no ordinary user to run as")
    return pwd.getpwnam(min(names)).pw_uid


def as_user(user: int, *words: str) -> Any:
    command = [*python(), "-c", AS_USER, str(user), *words]
    environment = os.environ | {"PYTHONPATH": CHILD_PATH}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


@as_root
def test_the_folder_of_another_user_is_named_with_its_user(ordinary_user: int, folder: Path) -> None:
    theirs = Embedded(folder / "theirs", durable=False)
    theirs.acquire()
    theirs.release()
    for command in (["init"], ["streams"], ["doctor"], ["worker", "list"]):
        ended = as_user(ordinary_user, "--dsn", theirs.printable, *command)
        assert (ended.returncode, ended.stdout) == (4, ""), command
        told = f"{theirs.home} belongs to user 0: run as that user, or set LEDGER_HOME to another folder"
        assert ended.stderr == f"pledger: {told}\n", command


@as_root
def test_a_folder_in_a_closed_one_is_named(ordinary_user: int, folder: Path) -> None:
    closed = folder / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0o700)
    for command in ("init", "streams"):
        ended = as_user(ordinary_user, "--dsn", f"embedded:{closed}/home", command)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (4, "", 1)
        assert f"the server in {closed}/home cannot be used: {closed}/home" in ended.stderr
        assert "Permission denied" in ended.stderr
