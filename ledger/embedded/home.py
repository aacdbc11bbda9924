"""
The home: the folder of an embedded server, and the files in it.

    clients.lock   shared by every client while it lives, exclusive by the reaper when none is left
    start.lock     one client at a time looks after the server
    reaper.lock    held by the running reaper
    server.lock    inherited by initdb, the postmaster and all its children: free means that none lives
    admin.secret   password of the superuser        ledger.secret  password of the everyday role
    server.conf    our settings                     startup.log    what the server said before its log began
    socket         where the socket lies, if the path of `data` is too long for one
    data/          the cluster

`flock` needs a local file system; so does PostgreSQL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ledger.embedded.account import Account
from ledger.errors import ServerUnavailable, StorageFull

CLIENTS, START, REAPER, SERVER = "clients.lock", "start.lock", "reaper.lock", "server.lock"
ADMIN, EVERYDAY = "admin.secret", "ledger.secret"
SOCKET_LENGTH = 103  # of a socket's path: macOS allows 104 with the closing zero, Linux 108
LONGEST_HOME = 800  # PostgreSQL keeps paths in 1024 bytes, and its own files lie deeper
_ELSEWHERE = "or set LEDGER_HOME to another folder"
PORT = 5432  # only a part of the socket's name: the server listens on no network


def default_home() -> Path:
    """The default home: LEDGER_HOME, or the data folder of the user (root: of the system)."""
    if home := os.environ.get("LEDGER_HOME"):
        return Path(home)
    if os.geteuid() == 0:
        return Path("/var/lib/ledger")
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "ledger"
    except RuntimeError:
        raise ServerUnavailable(
            "this user has no home folder: set LEDGER_HOME to one for the server"
        ) from None


def wait_until(condition: Callable[[], bool], deadline: float, otherwise: str) -> None:
    """Poll a condition until the deadline (of `time.monotonic`), then refuse with a sentence."""
    while not condition():
        if time.monotonic() > deadline:
            raise ServerUnavailable(otherwise)
        time.sleep(0.01)


def try_lock(fd: int, how: int) -> bool:
    """Take an flock without waiting; returns whether it succeeded."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Home:
    """The folder of one embedded server."""

    def __init__(self, path: Path) -> None:
        if "\0" in str(path):
            raise ServerUnavailable("the path of the server's folder contains a NUL byte: remove it")
        self.path = path.expanduser().resolve()
        self.data = self.path / "data"
        self.startup_log = self.path / "startup.log"

    def create(self, account: Account) -> None:
        """Make the folder if it is absent, and refuse one in which others could plant files."""
        if len(os.fsencode(self.path)) > LONGEST_HOME:
            raise ServerUnavailable(f"{self.path} is too long for PostgreSQL: at most {LONGEST_HOME} bytes")
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        if missing:
            self.demand_reach(account, missing[-1].parent)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another client was quicker
                path.mkdir(mode=0o711 if account.is_other else 0o700)
                path.chmod(0o711 if account.is_other else 0o700)  # mkdir's mode is cut by the umask
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise ServerUnavailable(self._of_others(found.st_uid))
        if stat.S_IMODE(found.st_mode) & 0o022:
            raise ServerUnavailable(
                f"{self.path} is writable by others: run `chmod go-w` on it, {_ELSEWHERE}"
            )

    def has_cluster(self) -> bool:
        """Whether a server was created here. Raises ServerUnavailable if the folder cannot be read."""
        try:
            return (self.data / "PG_VERSION").exists()
        except OSError as error:
            raise self.refusal(error) from None

    def refusal(self, error: OSError) -> ServerUnavailable:
        """The error for an operation on this folder, or on a file in it, that the system refused."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(f"the disk of {self.path} is full: free some space, {_ELSEWHERE}")
        says = f"{error.filename or self.path}: {error.strerror or error}"
        with contextlib.suppress(OSError):
            if isinstance(error, PermissionError) and (owner := self.path.stat().st_uid) != os.geteuid():
                return ServerUnavailable(self._of_others(owner))
        return ServerUnavailable(f"the server in {self.path} cannot be used: {says}")

    def _of_others(self, owner: int) -> str:
        return f"{self.path} belongs to user {owner}: run as that user, {_ELSEWHERE}"

    def demand_room(self, needed: int, what: str) -> None:
        """Raise StorageFull if the disk has less free space than needed."""
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise StorageFull(
                f"{self.path} has {free >> 20} MB of free disk, and {what} {needed >> 20} MB: free some "
                "space, "
                f"{_ELSEWHERE}"
            )

    def demand_reach(self, account: Account, folder: Path) -> None:
        """Raise ServerUnavailable if the account cannot reach the folder. Permissions are never widened."""
        if account.is_other and not account.reaches(folder):
            closed = next(path for path in (*reversed(folder.parents), folder) if not account.reaches(path))
            raise ServerUnavailable(
                f"the server runs as user {account.name}, who cannot pass through {closed} to {self.path}: "
                "set LEDGER_HOME to a folder that every user can reach"
            )

    # -- locks -----------------------------------------------------------

    def open_lock(self, name: str) -> int:
        """Open a lock file, never as descriptor 0, 1 or 2: a closed stdin must not swallow it."""
        fd = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fd > 2:
            return fd
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        finally:
            os.close(fd)

    def acquire_lock(self, name: str, how: int, deadline: float) -> int:
        """Wait for a lock and return its descriptor; the lock is held while any copy of it is open."""
        fd = self.open_lock(name)
        try:
            busy = f"another process has locked {self.path / name} for too long"
            wait_until(lambda: try_lock(fd, how), deadline, busy)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def locked(self, name: str, deadline: float) -> Iterator[int]:
        """Hold a lock exclusively while the block runs."""
        fd = self.acquire_lock(name, fcntl.LOCK_EX, deadline)
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # another thread may have forked: its child has a copy of fd
            os.close(fd)

    # -- files -----------------------------------------------------------

    def write(self, name: str, text: str, mode: int = 0o600) -> None:
        """Replace a file atomically."""
        new = self.path / f"{name}.new"
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.path / name)

    def make_secret(self, name: str) -> None:
        """Create a password unless it exists; a crash leaves the whole file or none."""
        if not (self.path / name).exists():
            self.write(name, secrets.token_urlsafe(24))

    def secret(self, name: str) -> str:
        """Read a password."""
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            raise ServerUnavailable(
                f"{self.path / name} is missing, and the server needs the password in it: restore the file"
            ) from None

    # -- the socket ------------------------------------------------------

    def socket_folder(self) -> Path | None:
        """The folder of the server's socket: `data`, or a recorded short one. None: not chosen yet."""
        fits = len(os.fsencode(self.data / f".s.PGSQL.{PORT}")) <= SOCKET_LENGTH
        # A comma would part two hosts, for libpq as for the server; bytes that are no text do not print.
        if fits and "," not in str(self.data) and str(self.data).isprintable():
            return self.data
        with contextlib.suppress(FileNotFoundError):
            short = Path((self.path / "socket").read_text())
            # A copy of the home must not lead to the server of the original, nor a folder in /tmp,
            # once cleaned away, to whoever made it anew.
            if short.name.startswith(self._mark()) and self._is_private(short):
                return short
        return None

    def make_socket_folder(self, account: Account) -> Path:
        """The socket's folder, made where needed: in /tmp, under a name that nobody can guess beforehand."""
        if (folder := self.socket_folder()) is None:
            folder = Path(tempfile.mkdtemp(prefix=self._mark(), dir="/tmp"))
            account.give(folder)
            self.write("socket", str(folder))
        return folder

    def _mark(self) -> str:
        return f"ledger-pg-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}-"

    def _is_private(self, folder: Path) -> bool:
        try:
            found, owner = folder.lstat(), self.data.stat().st_uid
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == owner
