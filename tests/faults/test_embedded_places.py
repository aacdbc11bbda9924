"""Where an embedded server can live, as whom it runs, and of which version it is."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.embedded import Embedded
from ledger.embedded.binaries import candidates, major_of
from ledger.embedded.cluster import ROLE
from ledger.errors import BadInput, ServerUnavailable
from tests.faults.conftest import CHILD_PATH, eventually, nothing_runs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a server as another user")
MAJORS = {major_of(folder): folder for folder in reversed(list(candidates()))}


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything in a folder with what would show a change."""
    stats = {str(path): path.lstat() for path in [folder, *folder.rglob("*")]}
    return {path: (s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns) for path, s in stats.items()}


def permissions(folder: Path) -> list[tuple[int, int, int]]:
    """Mode and owner of a folder and of all above it."""
    stats = [path.stat() for path in (folder, *folder.parents)]
    return [(s.st_mode, s.st_uid, s.st_gid) for s in stats]


def test_a_home_is_a_path_or_its_text(tmp_path: Path) -> None:
    assert Embedded(str(tmp_path)).home == Embedded(tmp_path).home == tmp_path.resolve()


@pytest.mark.parametrize("home", [5, "", b"/tmp", True])
def test_what_is_no_path_is_no_home(home: Any) -> None:
    with pytest.raises(BadInput, match="must be the path of a folder"):
        Embedded(home)


def serves(server: Embedded) -> bool:
    with psycopg.connect(server.acquire()) as connection:
        return connection.execute("SELECT current_user").fetchone() == (ROLE,)


# -- paths --------------------------------------------------------------------


@pytest.mark.parametrize("name", ['it\'s a "$HOME" `\\', "ü, " + "very long/" * 50])
def test_odd_paths(folder: Path, name: str) -> None:
    server = Embedded(folder / name, durable=False)
    assert serves(server)
    assert stat.S_IMODE(server.socket_folder.stat().st_mode) == 0o700
    server.stop()
    assert serves(server)
    server.release()
    eventually(lambda: nothing_runs(server.home))


def test_a_path_that_no_server_could_use(folder: Path) -> None:
    with pytest.raises(ServerUnavailable, match="too long"):
        Embedded(folder / ("long/" * 200)).acquire()
    assert list(folder.iterdir()) == []


def test_the_socket_is_never_looked_for_in_a_folder_of_others(folder: Path) -> None:
    """Not in one that was made anew after /tmp was cleaned, nor in that of the home that was copied."""
    server = Embedded(folder / ("long" * 30), durable=False)
    server.acquire()
    recorded = server.socket_folder
    recorded.chmod(0o755)
    assert server.socket_folder != recorded
    recorded.chmod(0o700)
    assert server.socket_folder == recorded
    copy = Embedded(folder / ("copy" * 30))
    shutil.copytree(server.home, copy.home, ignore=shutil.ignore_patterns(".s.*"))
    assert copy.socket_folder != recorded
    shutil.rmtree(copy.home)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_that_others_can_write_is_refused(home: Path, mode: int) -> None:
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(ServerUnavailable, match="writable by others"):
        Embedded(home).acquire()
    assert list(home.iterdir()) == []


# -- accounts -----------------------------------------------------------------


@pytest.fixture
def closed(folder: Path) -> Path:
    folder = folder / "closed"
    folder.mkdir(mode=0o700)
    return folder


@as_root
def test_a_closed_parent_folder_is_refused_and_never_widened(closed: Path) -> None:
    before, content = permissions(closed), tree(closed)
    with pytest.raises(ServerUnavailable, match=f"cannot pass through {closed} "):
        Embedded(closed / "deep" / "home").acquire()
    assert (permissions(closed), tree(closed)) == (before, content)


@as_root
def test_binaries_out_of_reach_are_copied_once(
    closed: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next((folder for folder in candidates() if folder.parent.name.startswith("pginstall")), None)
    if wheel is None:
        pytest.skip("no wheel with PostgreSQL binaries is installed")
    package = wheel.parent.parent
    shutil.copytree(package, closed / package.name, ignore=shutil.ignore_patterns("include"))
    if (libraries := package.with_name(f"{package.name}.libs")).exists():
        shutil.copytree(libraries, closed / libraries.name)
    before, content = permissions(closed), tree(closed)
    monkeypatch.setenv("LEDGER_PG_BIN", str(closed / wheel.relative_to(package.parent)))
    monkeypatch.setenv("LEDGER_HOME", str(home))
    server = Embedded(durable=False)
    assert serves(server)
    copies = tree(home / "binaries")
    server.stop()
    assert serves(server)
    assert tree(home / "binaries") == copies
    assert all(path.lstat().st_uid == 0 for path in (home / "binaries").rglob("*"))
    assert (permissions(closed), tree(closed)) == (before, content)
    server.release()


@as_root
def test_nothing_of_the_server_runs_as_root(server: Embedded) -> None:
    server.acquire()
    owner = (server.home / "data").stat().st_uid
    seen = subprocess.check_output(["ps", "axww", "-o", "uid=,args="], text=True).splitlines()
    ours = [line.split()[0] for line in seen if str(server.home) in line]
    assert owner != 0
    assert ours == [str(owner)] * 2  # the postmaster and the reaper


# Root's interpreter and packages may be out of the user's reach: what is needed is loaded before the change.
AS_USER = """
import os, sys, encodings.idna
import psycopg
from ledger.log import dsn
from ledger.embedded.cluster import ROLE
uid, sys.executable = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
target = dsn.resolve()
assert psycopg.connect(target.conninfo).execute("SELECT current_user").fetchone() == (ROLE,)
print(target.printable)
"""


@pytest.fixture
def ordinary_user() -> int:
    """Some user who is neither root nor the one whom we would choose ourselves."""
    names = [
        name for name in ("nobody", "daemon", "games") if name in {entry.pw_name for entry in pwd.getpwall()}
    ]
    if not names:
        pytest.skip("this machine has no ordinary user to run as")
    return pwd.getpwnam(names[0]).pw_uid


@as_root
def test_not_as_root_below_a_closed_folder(
    closed: Path, ordinary_user: int, request: pytest.FixtureRequest
) -> None:
    interpreters = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
    reached = [path for path in interpreters if runs(path, ordinary_user)]
    usable = [folder for folder in candidates() if runs(str(folder / "postgres"), ordinary_user)]
    if not reached or not usable:
        pytest.skip("an ordinary user reaches no Python or no PostgreSQL here")
    os.chown(closed, ordinary_user, ordinary_user)
    before = permissions(closed)
    environment = {
        "PYTHONPATH": CHILD_PATH,
        "LEDGER_HOME": f"{closed}/deep/home",
        "LEDGER_PG_BIN": str(usable[0]),
    }
    command = [sys.executable, "-c", AS_USER, str(ordinary_user), reached[0]]
    said = subprocess.check_output(command, env=os.environ | environment, text=True, timeout=60)
    assert said.strip() == f"embedded:{closed}/deep/home"
    eventually(lambda: nothing_runs(closed / "deep" / "home"))
    assert permissions(closed) == before
    with pytest.raises(ServerUnavailable, match=f"belongs to user {ordinary_user}"):
        Embedded(closed / "deep" / "home").acquire()
    shutil.rmtree(closed / "deep")


def runs(program: str, uid: int) -> bool:
    try:
        return (
            subprocess.run(
                [program, "--version"], user=uid, group=uid, cwd="/", capture_output=True
            ).returncode
            == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root's server runs as another user, who cannot reach such a folder"
)
def test_an_ordinary_user_below_a_closed_folder(closed: Path) -> None:
    before = permissions(closed)
    server = Embedded(closed / "deep" / "home", durable=False)
    assert serves(server)
    assert permissions(closed) == before
    server.release()


# -- versions -----------------------------------------------------------------


@pytest.mark.parametrize("major", sorted(MAJORS))
def test_every_version_of_this_machine_serves_durably(
    home: Path, monkeypatch: pytest.MonkeyPatch, major: int
) -> None:
    monkeypatch.setenv("LEDGER_PG_BIN", str(MAJORS[major]))
    server = Embedded(home)
    with psycopg.connect(server.acquire()) as connection:
        assert connection.info.server_version // 10000 == major
        for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
            assert connection.execute(f"SHOW {name}").fetchone() == ("on",)
    monkeypatch.delenv("LEDGER_PG_BIN")
    server.stop()
    assert serves(server)  # finds the binaries that fit the data by itself


@pytest.fixture
def two_majors() -> tuple[int, int]:
    if len(MAJORS) < 2:
        pytest.skip(f"needs binaries of two versions, found {sorted(MAJORS)}")
    return min(MAJORS), max(MAJORS)


def test_data_of_another_version_is_not_touched(
    home: Path, monkeypatch: pytest.MonkeyPatch, two_majors: tuple[int, int]
) -> None:
    old, new = two_majors
    monkeypatch.setenv("LEDGER_PG_BIN", str(MAJORS[old]))
    server = Embedded(home, durable=False)
    server.acquire()
    server.release()
    eventually(lambda: nothing_runs(home))
    before = tree(home)
    monkeypatch.setenv("LEDGER_PG_BIN", str(MAJORS[new]))
    with pytest.raises(
        ServerUnavailable, match=f"the data needs PostgreSQL {old}, but found only PostgreSQL {new}"
    ):
        server.acquire()
    assert tree(home) == before
    monkeypatch.setenv("LEDGER_PG_BIN", str(MAJORS[old]))
    assert serves(server)
    server.release()


def test_binaries_that_are_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_PG_BIN", "/nowhere/bin")
    with pytest.raises(ServerUnavailable, match="LEDGER_PG_BIN is /nowhere/bin"):
        Embedded(home).acquire()
    eventually(lambda: nothing_runs(home))
