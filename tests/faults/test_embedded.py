"""The life of an embedded server: shared, never left behind, recovered, and secret."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from ledger.embedded import Embedded, reaper, throwaway
from ledger.embedded.cluster import ROLE
from ledger.errors import ServerUnavailable
from tests.faults.conftest import CHILD_PATH, Clients, eventually, nothing_runs
from tests.fork_server import python

PASSED_ON = ("LEDGER_PG_BIN", "PYTHONPYCACHEPREFIX")
"""What a program of cron gets of our environment: a developer's binaries, and where compiled modules are."""


def one(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


# -- shared -------------------------------------------------------------------


def test_processes_that_start_at_once_share_one_server(home: Path, clients: Clients) -> None:
    started = [clients.start(home, *python()) for _ in range(6)]
    assert len({clients.ready(client) for client in started}) == 1
    clients.end()
    eventually(lambda: nothing_runs(home))


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_dead_clients_leave_no_server_behind(
    server: Embedded, clients: Clients, death: signal.Signals
) -> None:
    first, second = clients.start(server.home), clients.start(server.home)
    pid = clients.ready(first)
    assert clients.ready(second) == pid
    first.send_signal(death)
    first.wait()
    assert clients.ready(clients.start(server.home)) == pid  # the second client kept it
    for client in clients.started:
        client.send_signal(death)
    eventually(lambda: nothing_runs(server.home))


@pytest.mark.parametrize("moment", ["reaper.lock", "data.new/PG_VERSION", "data/postmaster.pid"])
def test_a_client_killed_while_the_server_starts(home: Path, clients: Clients, moment: str) -> None:
    client = clients.start(home)
    eventually((home / moment).exists)
    client.kill()
    eventually(lambda: nothing_runs(home))
    server = Embedded(home, durable=False)
    assert one(server.acquire(), "SELECT current_user") == ROLE
    server.release()
    eventually(lambda: nothing_runs(home))


def test_coming_and_going_at_random_moments(server: Embedded) -> None:
    """Each client meets the reaper at another step; all get a server that works."""
    for _ in range(15):
        assert one(server.acquire(), "SELECT 1") == 1
        server.release()
    eventually(lambda: nothing_runs(server.home))


def test_a_fork_is_a_client_too(server: Embedded) -> None:
    program = """
import os, sys
from pathlib import Path
from ledger.embedded import Embedded
Embedded(Path(sys.argv[1]), durable=False).acquire()
if os.fork() == 0:
    sys.stdin.read()
"""
    command, environment = (
        [sys.executable, "-c", program, str(server.home)],
        os.environ | {"PYTHONPATH": CHILD_PATH},
    )
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as parent:
        assert parent.wait(60) == 0  # the parent has ended, its fork reads on
        pid = server.postmaster_pid()
        assert pid
        server.acquire()
        server.release()
        assert server.postmaster_pid() == pid
        assert parent.stdin is not None
        parent.stdin.close()
        eventually(lambda: nothing_runs(server.home))


def test_a_process_that_closed_all_its_files_acquires_again(server: Embedded) -> None:
    program = """
import os, sys
from pathlib import Path
from ledger.embedded import Embedded
server = Embedded(Path(sys.argv[1]), durable=False)
server.acquire()
os.closerange(3, 100)
import psycopg
assert psycopg.connect(server.acquire()).execute("SELECT 1").fetchone() == (1,)
"""
    environment = os.environ | {"PYTHONPATH": CHILD_PATH}
    subprocess.run([sys.executable, "-c", program, str(server.home)], check=True, env=environment, timeout=60)
    eventually(lambda: nothing_runs(server.home))


def test_a_folder_that_was_deleted_is_made_anew(home: Path) -> None:
    server = Embedded(home, durable=False)
    server.acquire()
    server.stop(immediate=True)
    shutil.rmtree(home)
    assert one(server.acquire(), "SELECT 1") == 1
    server.release()
    eventually(lambda: nothing_runs(home))


def test_a_durable_client_refuses_a_throw_away_server(server: Embedded) -> None:
    server.acquire()
    with pytest.raises(ServerUnavailable, match="may lose commits"):
        Embedded(server.home).acquire()


# -- recovered ----------------------------------------------------------------


def test_kill_9_of_the_postmaster(server: Embedded) -> None:
    durable = Embedded(server.home)
    with psycopg.connect(durable.acquire()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    pid = durable.postmaster_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    assert one(durable.acquire(), "SELECT number FROM kept") == 7
    assert durable.postmaster_pid() not in (None, pid)
    durable.release()


def stale_pid_of_a_program(server: Embedded) -> subprocess.Popen[bytes]:
    owner = (server.home / "data").stat()
    switch = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    return subprocess.Popen(["sleep", "60"], **switch)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("kind", ["another program", "zombie", "garbage", "empty"])
def test_stale_pid_file(server: Embedded, kind: str) -> None:
    server.acquire()
    pid_file = server.home / "data" / "postmaster.pid"
    lines = pid_file.read_text().split("\n")
    server.stop(immediate=True)
    with stale_pid_of_a_program(server) as other:
        if kind == "zombie":
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        text = {"garbage": "\0no number\n", "empty": ""}.get(kind, "\n".join([str(other.pid), *lines[1:]]))
        pid_file.write_text(text)
        assert one(server.acquire(), "SELECT 1") == 1
        server.stop()
        assert kind != "another program" or other.poll() is None
        other.kill()


@pytest.mark.parametrize("lost", ["role", "database", "secret"])
def test_a_set_up_that_was_cut_short_is_completed(server: Embedded, lost: str) -> None:
    server.acquire()
    with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
        connection.execute("DROP DATABASE ledger")
        if lost != "database":
            connection.execute(f"DROP ROLE {ROLE}")
    if lost == "secret":
        (server.home / "ledger.secret").unlink()
    assert one(server.acquire(), "SELECT current_user") == ROLE


def test_a_lost_password_of_the_superuser_is_named(server: Embedded) -> None:
    server.acquire()
    secret = (server.home / "admin.secret").rename(server.home / "elsewhere")
    with pytest.raises(ServerUnavailable, match=r"admin\.secret is missing"):
        server.admin_dsn()
    secret.rename(server.home / "admin.secret")


# -- secret, and of little power ----------------------------------------------


def test_the_everyday_role_is_no_superuser() -> None:
    with throwaway() as server:
        powers = "rolcanlogin, rolcreaterole, rolcreatedb, rolsuper"
        query = f"SELECT array[{powers}] FROM pg_roles WHERE rolname = current_user"
        assert one(server.dsn(), query) == [True, True, True, False]
        query = "SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()"
        assert one(server.dsn(), query) == ROLE
        assert one(server.admin_dsn(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True
        assert one(server.dsn(), "SHOW listen_addresses") == ""
    assert not server.home.exists()
    eventually(lambda: nothing_runs(server.home))


def test_no_way_in_without_the_password(server: Embedded) -> None:
    dsn = psycopg.conninfo.conninfo_to_dict(server.acquire())
    for wrong in ({"password": "guessed"}, {"user": "postgres", "password": str(dsn["password"])}):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(psycopg.conninfo.make_conninfo("", **(dsn | wrong)))


def test_no_password_is_to_be_seen(server: Embedded) -> None:
    server.acquire()
    home = server.home
    passwords = [(home / name).read_text() for name in ("admin.secret", "ledger.secret")]
    shown = [server.printable, repr(server), subprocess.check_output(["ps", "axww"], text=True)]
    for path in home.rglob("*"):
        if path.is_file() and path.suffix != ".secret":
            shown.append(path.read_bytes().decode(errors="replace"))
    assert len(set(passwords)) == 2
    assert not any(password in text for password in passwords for text in shown)
    closed = [path for path in home.iterdir() if path.name != "server.conf"]
    assert len(closed) == 8
    assert all(path.stat().st_mode & 0o077 == 0 for path in closed)


# -- from everywhere ----------------------------------------------------------


@pytest.mark.parametrize("umask", ["000", "077"])
def test_from_cron_with_closed_files_and_any_umask(home: Path, umask: str) -> None:
    words = f'umask {umask}; exec "$0" -c "$1" "$2" <&- >&- 2>&-'
    program = """
import sys; from pathlib import Path
from ledger.embedded import Embedded
import psycopg
server = Embedded(Path(sys.argv[1]), durable=False)
answer = psycopg.connect(server.acquire()).execute("SELECT 42").fetchone()
Path(sys.argv[1], "answer").write_text(str(answer))
"""
    environment = {"PYTHONPATH": CHILD_PATH, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {name: value for name, value in os.environ.items() if name in PASSED_ON}
    command = ["/bin/sh", "-c", words, sys.executable, program, str(home)]
    subprocess.run(command, check=True, env=environment, cwd="/", timeout=60)
    assert (home / "answer").read_text() == "(42,)"
    eventually(lambda: nothing_runs(home))
    assert home.stat().st_mode & 0o022 == 0


def test_the_reaper_needs_nothing_of_ours() -> None:
    tree = ast.parse(Path(reaper.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - {"__future__"} <= sys.stdlib_module_names


def test_a_reaper_whose_home_is_gone_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become: Callable[[int, int], None] = lambda uid, gid: None  # noqa: E731
    monkeypatch.setattr(reaper, "become", become)
    reaper.main("stop", str(folder / "gone"), 0, 0)
    assert not (folder / "gone").exists()
