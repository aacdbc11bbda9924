"""
The LMDB environment of a folder: opened once in this process, shared by all that use it here.

Readers have snapshots and never wait; one writer at a time, over all processes. What may go wrong:

- The map is full: it is doubled, and the write runs again. Another process doubled it: the new size is taken.
- A process forks: the child opens an environment of its own at first use.
- The files are damaged or cut off: they are deleted and made anew, empty; the owner fills them again.
- The files were deleted, or replaced by another process: the next `write` or `reading` opens the new ones.
- The folder cannot be written: the files are opened for reading only.

A commit is flushed once, without the page that names it (`metasync=False`): after a crash of the machine the
last one may be undone as a whole. That is right for a copy, whose position is in the same transaction.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from ledger import DatabaseFullError, StateDBError

try:
    import lmdb
except ImportError as missing:
    raise ImportError(
        "the local copy of builds needs the package lmdb: install the extra `builds`"
    ) from missing

R = TypeVar("R")
Transaction: TypeAlias = "lmdb.Transaction[bytes]"

FIRST_SIZE: Final = 1 << 30
"""Bytes of the first map: address space, no memory and no disk. It doubles when it is full."""
PATIENCE: Final = 60.0
"""Seconds that a change of the map waits for the transactions of this process."""
FILES: Final = ("data.mdb", "lock.mdb")
_DAMAGED: Final = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError, lmdb.PageNotFoundError)
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Also EIO: so LMDB calls a page that was written in part, which is what a full disk does."""
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_log = logging.getLogger(__name__)


class Environment:
    """The environment in a folder, which is made where it is missing; use `Environment.shared`.

    map_size: of the first map, in bytes. Its first use raises StateDBError where the folder can be neither
    read nor made.
    """

    def __init__(self, folder: Path, map_size: int = FIRST_SIZE) -> None:
        self.folder, self.map_size = folder, map_size
        self.is_readonly = False
        self._lmdb: lmdb.Environment | None = None
        self._files: tuple[int, int] | None = None  # device and inode of the data file that is open
        self._users = 0
        self._forget_threads()

    # Shared in this process

    @classmethod
    def shared(cls, folder: Path, map_size: int = FIRST_SIZE) -> Environment:
        """The environment of a folder in this process; `release` it when it is no longer used."""
        place = os.path.realpath(folder)
        with _registry:
            found = _shared.get(place)
            if found is None:
                found = _shared[place] = cls(Path(place), map_size)
            found._users += 1
            return found

    def release(self) -> None:
        """One user less; the last one closes it."""
        with _registry:
            self._users -= 1
            if self._users == 0:
                del _shared[str(self.folder)]
                self.close()

    def close(self) -> None:
        """Close it once its transactions are over; the next use opens it again."""
        with self._changing():
            self._close()

    # Reading and writing

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None where it has none."""
        while True:
            if self._lmdb is None:
                self._open()
            try:
                with self._lock:  # so that the map does not change meanwhile
                    if (opened := self._lmdb) is not None:
                        reader = opened.begin()
                        value = reader.get(key)
                        reader.abort()
                        return value
            except lmdb.Error as error:
                problem = error
            else:
                continue
            self._mend(problem)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One snapshot for all that is read in the block. This thread must not write in it."""
        self._look_again()
        reader = self._begin(write=False)
        self._mine.depth = self._depth + 1
        try:
            yield reader
        except lmdb.Error as error:
            raise self._as_ours(error) from error
        finally:
            self._mine.depth -= 1
            reader.abort()
            self._leave()

    def write(self, work: Callable[[Transaction], R]) -> R:
        """Run `work` in one transaction and commit it: all of it is stored, or nothing.

        It runs again where the map had to grow, or the files were damaged and made anew. Raises
        DatabaseFullError where the disk is full, StateDBError where the folder cannot be written.
        """
        if self._depth:
            raise StateDBError("a thread cannot write inside its own `reading` block: end that first")
        self._look_again()
        while True:
            writer = self._begin(write=True)
            try:
                with writer:
                    return work(writer)
            except lmdb.Error as error:
                problem = error
            finally:
                self._leave()
            self._mend(problem)

    def _begin(self, *, write: bool) -> Transaction:
        """Begin a transaction of a map that has the size which the last writer gave it."""
        while True:
            with self._lock:
                self._inside += 1
            try:
                return (self._lmdb or self._open()).begin(write=write)
            except lmdb.Error as error:
                self._leave()
                self._mend(error)
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._waiting and not self._inside:
                self._empty.notify_all()

    @property
    def _depth(self) -> int:
        """How many `reading` blocks this thread is in."""
        return getattr(self._mine, "depth", 0)

    # Growing and mending

    def _mend(self, error: lmdb.Error) -> None:
        """Do what makes a further try sensible, else raise the error as one of ours."""
        if isinstance(error, lmdb.MapFullError | lmdb.MapResizedError):
            self._grow(full=isinstance(error, lmdb.MapFullError))
        elif isinstance(error, _DAMAGED):
            self.discard(str(error))
        else:
            self.close()  # after a page could not be written it must be opened again
            raise self._as_ours(error) from error

    def _grow(self, *, full: bool) -> None:
        """Take the size that another process gave the map; double it if it is still the one that was full."""
        with self._changing():
            if self._lmdb is None:
                return
            before = self._lmdb.info()["map_size"]
            self._lmdb.set_mapsize(0)
            size = self._lmdb.info()["map_size"]
            if full and size <= before:
                size = before * 2
                try:
                    self._lmdb.set_mapsize(size)
                except (lmdb.Error, OverflowError) as error:
                    self._close()
                    why = f"its map cannot have {size} bytes of address space ({error})"
                    raise DatabaseFullError(str(self.folder), why) from error
            self.map_size = size

    def discard(self, why: str) -> None:
        """Delete the files, which are damaged; the next use makes new ones. Raises StateDBError."""
        _log.warning("the local copy %s is made again: %s", self.folder, why)
        with self._changing(), self._errors():
            damaged = self._files
            self._close()
            with self._alone():
                if damaged == self._there():  # else another process has done it
                    self._delete()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """In the block, no thread of this process is in a transaction or begins one."""
        with self._lock:
            self._waiting += 1
            try:
                if not self._empty.wait_for(lambda: not self._inside, PATIENCE):
                    raise StateDBError(
                        f"the map of {self.folder} cannot change, because a transaction of this process has "
                        f"been open for {PATIENCE:.0f} seconds: end it, and try again"
                    )
                yield
            finally:
                self._waiting -= 1

    # Opening and closing

    def _look_again(self) -> None:
        """Close the files that are open if they were deleted or replaced; the next use opens those there."""
        if self._lmdb is not None and not self._depth and self._there() != self._files:
            with self._changing():
                if self._there() != self._files:
                    self._close()

    def _there(self) -> tuple[int, int] | None:
        """Device and inode of the data file."""
        try:
            found = os.stat(self._data)  # noqa: PTH116  before each write: pathlib takes twice as long
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    @property
    def _data(self) -> str:
        return f"{self.folder}/{FILES[0]}"

    def _open(self) -> lmdb.Environment:
        with self._lock:
            if self._lmdb is None:
                with self._errors():
                    self._lmdb = self._opened()
                self._files = self._there()
            return self._lmdb

    def _opened(self) -> lmdb.Environment:
        """Open the files, or make them; those that are cut off or no environment are deleted first."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self.is_readonly = False
                try:
                    return self._attempt()
                except _DAMAGED as error:
                    _log.warning("the local copy %s is made again: %s", self.folder, error)
                self._delete()
                return self._attempt()
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
        self.is_readonly = True
        return self._attempt(readonly=True)

    def _attempt(self, *, readonly: bool = False) -> lmdb.Environment:
        """Open the files, and check that they are whole, since LMDB does not: a page that is not there would
        end the process.
        """
        opened = lmdb.open(
            str(self.folder), self.map_size, readonly=readonly, lock=not readonly, create=not readonly,
            metasync=False, max_readers=1022, mode=0o644,
        )  # fmt: skip
        size = os.stat(self._data).st_size  # noqa: PTH116
        wanted = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        if size < wanted:
            opened.close()
            raise lmdb.CorruptedError(f"its file has {size} bytes and should have {wanted}")
        if not readonly:
            opened.reader_check()  # the readers of killed processes would keep old pages for ever
        return opened

    def _close(self) -> None:
        opened, self._lmdb, self._files = self._lmdb, None, None
        if opened is not None:
            opened.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """In the block, no other process opens or replaces the files."""
        with (self.folder / "open.lock").open("a") as file:
            flock(file, LOCK_EX)
            yield

    def _delete(self) -> None:
        for name in FILES:
            (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._as_ours(error) from error
        except OSError as error:
            raise StateDBError(f"the local copy {self.folder} cannot be opened: {error}") from error

    def _as_ours(self, error: lmdb.Error) -> StateDBError:
        code = getattr(error, "code", None)
        if isinstance(error, lmdb.DiskError) or code in _FULL:
            return DatabaseFullError(
                str(self.folder), f"its disk, or the limit of its files, is full ({error})"
            )
        if isinstance(error, lmdb.ReadonlyError) or code in _NOT_WRITABLE:
            return StateDBError(f"this user cannot write the local copy {self.folder}")
        if code == errno.ENOENT:
            return StateDBError(
                f"there is no local copy in {self.folder}, and this user cannot make one there"
            )
        return StateDBError(f"the local copy {self.folder}: {error}")

    # Forking

    def _forget_threads(self) -> None:
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._mine = threading.local()
        self._inside = self._waiting = 0

    def _in_child(self) -> None:
        """Forget the parent's environment, which no child may use; the next use opens another."""
        self._forget_threads()
        self._close()


_shared: dict[str, Environment] = {}
_registry = threading.Lock()


def _after_fork() -> None:
    global _registry
    _registry = threading.Lock()
    for environment in _shared.values():
        environment._in_child()


os.register_at_fork(after_in_child=_after_fork)
