"""
The reaper: stops an embedded server when its last client is gone.

A program of its own that imports nothing of the ledger: it outlives its clients, and an upgrade of
them. The kernel drops a client's shared lock however the client died, so holding that lock alone
means that no client is left, and that a new one waits until the server has stopped.

    reaper.py watch HOME UID GID FD    FD: the lock of the running reaper, passed on by a client
    reaper.py stop HOME UID GID        stop now, fast: sessions are ended, the shutdown is clean
    reaper.py kill HOME UID GID        stop now, at once: the next start recovers
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time

PATIENCE = 60.0  # seconds for a fast shutdown; an immediate one loses nothing that was committed


def main(task: str, home: str, uid: int, gid: int, watching: int = -1) -> None:
    """Open the locks, become the server's user, wait for the clients' end, stop the server."""
    if task == "watch":
        detach()
    try:
        # Above `watching`: if this process is killed, the kernel closes that one first, and a
        # client that then starts sees that no reaper runs.
        clients, server = (open_above(watching, f"{home}/{name}.lock") for name in ("clients", "server"))
    except FileNotFoundError:
        return  # a throw-away home is gone already; nothing is created in its place
    become(uid, gid)
    if task == "watch":
        fcntl.flock(clients, fcntl.LOCK_EX)
    stop(server, f"{home}/data/postmaster.pid", signal.SIGQUIT if task == "kill" else signal.SIGINT)
    if task == "watch":
        os.close(watching)  # before the clients' lock, for the same reason
        os.close(clients)


def detach() -> None:
    """Detach from the client: neither its child nor in its session."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def open_above(floor: int, path: str) -> int:
    """Open a lock file under a descriptor greater than `floor`."""
    low = os.open(path, os.O_RDWR)
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, max(floor, 2) + 1)
    os.close(low)
    return high


def become(uid: int, gid: int) -> None:
    """Drop root: the number that we shall signal stands in a file that the server's user can write."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def stop(server: int, pid_file: str, how: signal.Signals) -> None:
    """Signal the postmaster until every process of the server has let go of its lock."""
    began, sent = time.monotonic(), None
    while not is_free(server):
        if time.monotonic() - began > PATIENCE:
            how = signal.SIGQUIT
        # While the server starts there is no postmaster yet: look again.
        if sent != how and (pid := postmaster(pid_file)):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone since
                os.kill(pid, how)
            sent = how
        # A stopped or traced process of a killed server may keep us waiting for days.
        time.sleep(0.01 if time.monotonic() - began < 2 * PATIENCE else 1.0)
    fcntl.flock(server, fcntl.LOCK_UN)


def is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def postmaster(pid_file: str) -> int | None:
    """The number of a live postmaster. It counts only if its socket answers: files outlive servers."""
    try:
        with open(pid_file, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 (start-up time)
            lines = file.read(8192).split("\n")
        pid, port, folder = int(lines[0]), lines[3], lines[4]
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(f"{folder}/.s.PGSQL.{port}")
    except (OSError, ValueError, IndexError):
        return None
    return pid if pid > 1 else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
