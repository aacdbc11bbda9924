"""
The local copy of one build project: what the log says of it, in LMDB beside its files, with some caches.

    with BuildCopy(log, root / FOLDER, "proteome") as copy:
        copy.catch_up()                              # with all that is recorded now
        with copy.reading() as now:                  # one snapshot, without a query
            now.generation("out/counts.tsv")

A point read costs microseconds and needs no server. A copy that is missing, damaged, of another ledger, of a
history that was rolled back, of another project or of another format is made again from the log; the caches
in it stay, unless its files were damaged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from ledger import Cursor, Ledger, LedgerBusy, StateDBClosed, StateDBError, StateDBReadonly

from ..engine.background import Background
from ..engine.follower import FIRST_PAUSE, retry_outages
from . import caches, keys
from .caches import FileHash, Fingerprint
from .environment import FIRST_SIZE, Environment, Transaction
from .feeder import CURSOR, IDENTITY, Feeder, fits
from .places import STORE
from .reading import Generation, Snapshot, generation_in

R = TypeVar("R")
LONGEST_PAUSE: Final = 0.02
"""Seconds between two looks at a log in which nothing happens."""


class BuildCopy:
    """The local copy of a project, in a folder that is made where it is missing; the entries are in STORE.

    log: None to read offline what the copy has. readonly: refuse what writes, with StateDBReadonly.
    map_size: bytes of the first map. Any use after `close` raises StateDBClosed. Threads may share it.
    """

    def __init__(
        self,
        log: Ledger | None,
        folder: Path,
        project: str,
        *,
        readonly: bool = False,
        map_size: int = FIRST_SIZE,
    ) -> None:
        self.log, self.folder, self.project, self.readonly = log, folder, project, readonly
        self._shared: Environment | None = Environment.shared(folder / STORE, map_size)
        self._feeder = None if log is None else Feeder(log, self._environment, project)

    def close(self) -> None:
        """Close it; further calls do nothing."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Reading

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """One snapshot for all that is read in the block. This thread must not write in it.

        Where the copy is not one of this project, it is made first; StateDBError if that is not possible.
        """
        while True:
            with self._environment().reading() as reader:
                if self._is_ours(reader.get(IDENTITY)):
                    yield Snapshot(reader)
                    return
            if self._feeder is None or self.readonly:
                raise StateDBError(
                    f"the local copy {self.folder} is not one of project {self.project!r} made by this "
                    "version: open it with a ledger, and not read-only, so that it can be made"
                )
            retry_outages(self._feeder.log, self._feeder.step)

    def generation(self, path: str) -> Generation | None:
        """The present generation and hash of an output; None where nothing is recorded of it."""
        value = self._environment().get(keys.key(keys.GENERATION, path))
        if value is not None:
            return generation_in(value)
        with self.reading() as now:  # the whole copy may be missing
            return now.generation(path)

    def hash_of(self, path: str, stat: os.stat_result) -> str | None:
        """The hash of a file with this metadata; None where it must be read."""
        return caches.hash_in(self._environment().get(keys.key(keys.HASH, path)), stat)

    def fingerprint(self, wanted: Fingerprint) -> str | None:
        """The fingerprint of a piece of code; None where it must be made. Raises InvalidAstHashKeyError."""
        value = self._environment().get(wanted.key())
        return None if value is None else value.decode()

    def raw(self, name: bytes) -> bytes | None:
        """The bytes that a program put under this name."""
        return self._environment().get(keys.raw(name))

    # Caches

    def save_hashes(self, files: Iterable[FileHash], seen_at: int) -> int:
        """Store hashes of files, those of racy ones left out; returns how many (spec S4-11).

        seen_at: `time.time_ns()` before the files were read.
        """
        return self._write("save_hashes", lambda writer: caches.save_hashes(writer, [*files], seen_at))

    def save_fingerprints(self, prints: Sequence[tuple[Fingerprint, str]], seen_at: int) -> int:
        """Store fingerprints of code, invalid and racy ones left out; returns how many (spec S4-15)."""
        return self._write(
            "save_fingerprints", lambda writer: caches.save_fingerprints(writer, prints, seen_at)
        )

    def clear_fingerprints(self) -> int:
        """Delete all fingerprints; returns how many."""
        return self._write("clear_fingerprints", lambda writer: keys.clear(writer, keys.FINGERPRINT))

    def put_raw(self, named: Iterable[tuple[bytes, bytes]]) -> None:
        """Store bytes under names."""
        items = [(keys.raw(name), value) for name, value in named]
        self._write("put_raw", lambda writer: writer.cursor().putmulti(items))

    def gc(self, root: Path) -> int:
        """Delete hashes and fingerprints of files that are gone or have changed; returns how many (W4-09)."""
        return self._write("gc", lambda writer: caches.forget_files(writer, root))

    # Following the log

    @property
    def position(self) -> int:
        """The position in the log up to which the copy has it; 0 where it has nothing."""
        known = self._environment().get(CURSOR)
        return Cursor.parse(known.decode()).position if known else 0

    def catch_up(self, position: int | None = None) -> int:
        """Read the log up to now, or at least up to a position; returns how many events of the project came.

        position: of an event that is recorded. Raises LedgerBusy where an older append has been open for the
        ledger's `timeout`.
        """
        feeder, came = self._feeding("catch_up"), 0
        log, deadline = feeder.log, time.monotonic() + feeder.log.pool.timeout
        while True:
            seen = log.wakeup.seen()
            folded = retry_outages(log, feeder.step)
            came += folded or 0
            if folded is None if position is None else feeder.read_to >= position:
                return came
            if folded is not None:
                continue
            if time.monotonic() > deadline:
                raise LedgerBusy(
                    f"position {position} cannot be read yet, because an append before it has been open for "
                    f"{log.pool.timeout:.0f} seconds: `pledger doctor` shows it"
                )
            log.wakeup.wait(seen, FIRST_PAUSE)

    def follow(self) -> CopyFollower:
        """Keeps the copy up to date in a thread: `with copy.follow(): …`."""
        return CopyFollower(self._feeding("follow"))

    def rebuild(self) -> int:
        """Make what follows from the log again; the caches stay. Returns how many events there are."""
        feeder = self._feeding("rebuild")
        return retry_outages(feeder.log, feeder.rebuild) or 0

    # Parts

    def _environment(self) -> Environment:
        if self._shared is None:
            raise StateDBClosed
        return self._shared

    def _write(self, method: str, work: Callable[[Transaction], R]) -> R:
        environment = self._environment()
        if self.readonly:
            raise StateDBReadonly(method)
        return environment.write(work)

    def _feeding(self, method: str) -> Feeder:
        self._environment()
        if self.readonly:
            raise StateDBReadonly(method)
        if self._feeder is None:
            raise StateDBError(f"{method} needs a ledger: this copy was opened offline")
        return self._feeder

    def _is_ours(self, found: bytes | None) -> bool:
        if self._feeder is not None:
            return found == self._feeder.identity
        return found is not None and fits(found, self.project)


class CopyFollower(Background):
    """Feeds a copy in a thread, or by `run`. An error ends it, and is raised where the `with` block ends."""

    title = "follower of the local copy"

    def __init__(self, feeder: Feeder) -> None:
        super().__init__()
        self._feeder = feeder

    @property
    def position(self) -> int:
        """The position in the log up to which it has read."""
        return self._feeder.read_to

    def run(self, stop: threading.Event | None = None) -> None:
        """Feed it until `stop` is set."""
        log, pause = self._feeder.log, FIRST_PAUSE
        while not (stop and stop.is_set()):
            seen = log.wakeup.seen()
            if retry_outages(log, self._feeder.step, stop) is None:
                log.wakeup.wait(seen, pause, stop)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            with self.moved:
                self.moved.notify_all()
