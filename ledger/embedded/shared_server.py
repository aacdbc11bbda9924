"""`Embedded`: one server for all processes of this machine that want the same home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.embedded import reaper
from ledger.embedded.account import Account, account_for, environment
from ledger.embedded.cluster import DATABASE, ROLE, SUPERUSER, Cluster
from ledger.embedded.home import ADMIN, CLIENTS, EVERYDAY, REAPER, SERVER, START, Home, default_home, try_lock
from ledger.errors import BadInput, ServerUnavailable, shown


def _path_of(home: object) -> Path:
    """The folder that is meant. Raises BadInput for what is no path."""
    if not isinstance(home, Path | str) or not str(home):
        raise BadInput(f"home {shown(home)} must be the path of a folder, such as '/data/ledger'")
    return Path(home)


class Embedded:
    """
    A PostgreSQL server in a folder, shared by its clients: the first starts it, after the last it stops.

    A client is a process that has called `acquire`. A fork of it is a client too, because it inherits the
    lock: the server runs until both have ended. Any other process must call `acquire` itself.
    """

    def __init__(self, home: Path | str | None = None, *, durable: bool = True) -> None:
        """home: the folder, created if missing; by default LEDGER_HOME or the user's. Raises BadInput."""
        self._home = Home(default_home() if home is None else _path_of(home))
        self._durable = durable
        self._client_lock = ClientLock(self._home)
        self._mutex = threading.Lock()

    @property
    def home(self) -> Path:
        """The folder, absolute and without symbolic links."""
        return self._home.path

    @property
    def printable(self) -> str:
        """The DSN to show: it contains no password, and `connect` starts the server by it."""
        return f"embedded:{self._home.path}"

    @property
    def socket_folder(self) -> Path:
        """The folder of the server's socket: its data folder, or one in /tmp if that path is too long."""
        return self._home.socket_folder() or self._home.data

    def acquire(self, timeout: float = 300.0) -> str:
        """Start the server unless it runs, keep it running for this process, and return the everyday DSN."""
        try:
            with self._mutex:
                self._attach(time.monotonic() + timeout)
            return self.dsn()
        except OSError as error:
            raise self._home.refusal(error) from None

    def is_made(self) -> bool:
        """Whether a server exists here, running or not. Raises ServerUnavailable without permission."""
        return self._home.has_cluster()

    def start_again(self, timeout: float = 60.0) -> bool:
        """Restart the server if it crashed; returns whether it runs.

        For its clients. After `stop` the server stays stopped until `acquire` is called.
        Raises ServerUnavailable.
        """
        if self.postmaster_pid() is not None:
            return True
        deadline = time.monotonic() + timeout
        try:
            with self._mutex:
                account = self._account()
                self._client_lock.acquire(deadline)
                with self._home.locked(START, deadline):
                    if not (self._home.data / "postmaster.pid").exists():
                        return False
                    self._post_reaper(account)
                    self._cluster(account).bring_up(deadline)
            return True
        except OSError as error:
            raise self._home.refusal(error) from None

    def release(self) -> None:
        """Stop being a client; the end of the process does the same."""
        with self._mutex:
            self._client_lock.release()

    def dsn(self, dbname: str = DATABASE) -> str:
        """The DSN for the everyday role, which owns the database and is not a superuser."""
        return self._cluster(self._account()).dsn(ROLE, EVERYDAY, dbname)

    def admin_dsn(self, dbname: str = "postgres") -> str:
        """The DSN for the superuser."""
        return self._cluster(self._account()).dsn(SUPERUSER, ADMIN, dbname)

    def stop(self, *, immediate: bool = False, timeout: float = 120.0) -> None:
        """Stop the server now, even if it is in use; `immediate` stops it like a crash."""
        account = self._account()
        with self._home.locked(START, time.monotonic() + timeout):
            self._run_reaper("kill" if immediate else "stop", account, timeout)

    def postmaster_pid(self) -> int | None:
        """The process id of the postmaster; None if the server does not run."""
        return reaper.postmaster(str(self._home.data / "postmaster.pid"))

    # -- inside ----------------------------------------------------------

    def _account(self) -> Account:
        return account_for(self._home.data)

    def _cluster(self, account: Account) -> Cluster:
        return Cluster(self._home, account, self._durable)

    def _attach(self, deadline: float) -> None:
        account = self._account()
        self._home.create(account)
        is_new = self._client_lock.acquire(deadline)
        try:
            with self._home.locked(START, deadline):
                self._post_reaper(
                    account
                )  # before the server, because this process may be killed while it starts
                self._cluster(account).bring_up(deadline)
        except BaseException:
            if is_new:
                self._client_lock.release()
            raise

    def _post_reaper(self, account: Account) -> None:
        """Ensure that a reaper runs: take the reaper's lock if it is free, and pass it to a new one."""
        watching = self._home.open_lock(REAPER)
        try:
            if try_lock(watching, fcntl.LOCK_EX):
                os.close(self._home.open_lock(SERVER))  # the reaper itself creates nothing
                self._run_reaper("watch", account, 60.0, watching)
        finally:
            os.close(watching)

    def _run_reaper(self, task: str, account: Account, timeout: float, *inherited: int) -> None:
        words = [task, self._home.path, account.uid, account.gid, *inherited]
        command = [_interpreter(), "-I", "-S", reaper.__file__, *map(str, words)]
        ways: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        ways |= {"cwd": "/", "env": environment(), "pass_fds": inherited}
        try:
            subprocess.run(command, check=True, timeout=timeout, **ways)
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerUnavailable(f"the reaper of the server in {self.home} failed: {error}") from None


class ClientLock:
    """Our share of the clients' lock: the server runs while it is open, here or in a fork."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._fd: int | None = None
        self._file: os.stat_result | None = None

    def acquire(self, deadline: float) -> bool:
        """Wait until no stop is in progress, and become a client; False if this process is one already."""
        if self._is_open() and self._is_of_this_folder():
            return False
        self.release()
        self._fd = self._home.acquire_lock(CLIENTS, fcntl.LOCK_SH, deadline)
        self._file = os.fstat(self._fd)
        return True

    def release(self) -> None:
        """Stop being a client: close the descriptor. A fork that has it too stays a client."""
        if self._fd is not None and self._is_open():
            os.close(self._fd)
        self._fd = None

    def _is_open(self) -> bool:
        """Whether our descriptor is still open: a process that becomes a daemon closes all of them."""
        if self._fd is None or self._file is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(self._file, os.fstat(self._fd))
        return False

    def _is_of_this_folder(self) -> bool:
        """Whether the lock file is the present one: the folder may have been deleted and created again."""
        with contextlib.suppress(FileNotFoundError):
            return self._file is not None and os.path.samestat(self._file, (self._home.path / CLIENTS).stat())
        return False


@contextlib.contextmanager
def throwaway(*, durable: bool = False) -> Iterator[Embedded]:
    """A running server for tests, in a temporary folder that is then deleted; not durable by default."""
    home = Path(tempfile.mkdtemp(prefix="ledger-throwaway-"))
    if os.geteuid() == 0:
        home.chmod(0o711)  # the server's user must be able to enter it
    server = Embedded(home, durable=durable)
    try:
        server.acquire()
        yield server
    finally:
        server.stop(immediate=True)
        server.release()
        for folder in (server.socket_folder, home):
            shutil.rmtree(folder, ignore_errors=True)


def _interpreter() -> str:
    found = sys.executable or shutil.which("python3")
    if not found:
        raise ServerUnavailable("no Python interpreter was found for the process that stops the server")
    return found
