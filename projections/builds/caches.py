"""
What the local copy caches and no log holds: hashes of files, fingerprints of code, bytes of programs.

The hash of a file is valid as long as its metadata (time of modification, size, inode, time of their last
change) is what it was before the file was read. That fails where the file changes again within the same tick
of the clock that stamps files. Such an entry is not stored at all, as `git` never trusts one (W4-10): the
file is hashed again next time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ledger import InvalidAstHashKeyError, PathTooLongError

from .environment import Transaction
from .keys import FINGERPRINT, HASH, entries, key, last_part, text, unescaped

TICK: Final = 20_000_000
"""Nanoseconds: longer than a tick of the clocks that stamp files, where these are finer than a second."""
COARSE_TICK: Final = 2_000_000_000
"""The same for a file system that keeps whole seconds, or even ones."""
_SECOND: Final = 1_000_000_000
_META: Final = Struct(">qQQq")
"""Time of modification, size, inode, time of change; the hash follows as text."""


class FileHash(NamedTuple):
    """The hash of a file whose metadata were these before it was read."""

    path: str
    stat: os.stat_result
    hash: str


class Fingerprint(NamedTuple):
    """What a fingerprint is kept under (spec S4-15): the file, its metadata, the name, the versions."""

    rel_path: str
    mtime_ns: int
    size: int
    inode: int
    qualname: str
    py_version: str
    schema_version: str

    def key(self) -> bytes:
        """Its key. Raises InvalidAstHashKeyError for an empty part, a NUL, or a key that is too long."""
        for name in ("rel_path", "qualname", "py_version", "schema_version"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidAstHashKeyError(name, value, "must be text that is not empty")
            if "\0" in value:
                raise InvalidAstHashKeyError(name, value, "contains NUL")
        try:
            return key(FINGERPRINT, *map(str, self))
        except PathTooLongError as error:
            raise InvalidAstHashKeyError("key", self.rel_path, str(error)) from error


def is_racy(stamp: int, seen_at: int) -> bool:
    """Whether a file may change after `seen_at` without a new stamp; both in nanoseconds since 1970.

    So is a stamp in the future: the clock was set back, or another machine made it.
    """
    return seen_at - stamp < (TICK if stamp % _SECOND else COARSE_TICK)


# Hashes of files


def hash_in(value: bytes | None, stat: os.stat_result) -> str | None:
    """The hash in an entry, if the file's metadata are those of the entry."""
    if value is None:
        return None
    changed_at = getattr(stat, "st_ctime_ns", 0)
    kept = value[: _META.size]
    packed = _META.pack(stat.st_mtime_ns, stat.st_size, stat.st_ino, changed_at)
    if kept != packed:  # a stat without the time of change, now or then, is compared without it
        *same, changed_before = _META.unpack(kept)
        if same != [stat.st_mtime_ns, stat.st_size, stat.st_ino] or 0 not in (changed_at, changed_before):
            return None
    return value[_META.size :].decode()


def save_hashes(writer: Transaction, files: Sequence[FileHash], seen_at: int) -> int:
    """Store the hashes of files that were read after `seen_at`; returns how many were not racy.

    Raises PathTooLongError, and nothing of them is stored (spec S4-11).
    """
    entries = []
    for path, stat, hash in files:
        place, changed_at = key(HASH, path), getattr(stat, "st_ctime_ns", 0)
        if not is_racy(stat.st_mtime_ns, seen_at) and not (changed_at and is_racy(changed_at, seen_at)):
            packed = _META.pack(stat.st_mtime_ns, stat.st_size, stat.st_ino, changed_at)
            entries.append((place, packed + hash.encode()))
    for place, value in entries:
        writer.put(place, value)
    return len(entries)


# Fingerprints of code


def save_fingerprints(writer: Transaction, prints: Iterable[tuple[Fingerprint, str]], seen_at: int) -> int:
    """Store fingerprints; leaves out racy and invalid ones (spec S4-15); returns how many were stored."""
    stored = 0
    for one, hash in prints:
        with suppress(InvalidAstHashKeyError):
            if not is_racy(one.mtime_ns, seen_at):
                writer.put(one.key(), hash.encode())
                stored += 1
    return stored


# Garbage


def forget_files(writer: Transaction, root: Path) -> int:
    """Delete the hashes and fingerprints of files that are gone or have changed since (W4-09); how many."""
    gone = [found for found, value in entries(writer, HASH) if not _is_valid(root, found, value)]
    gone += [found for found, _ in entries(writer, FINGERPRINT) if not _is_of_today(root, found)]
    for found in gone:
        writer.delete(found)
    return len(gone)


def _stat(root: Path, path: str) -> os.stat_result | None:
    try:
        return os.stat(root / path)  # noqa: PTH116
    except OSError:
        return None


def _is_of_today(root: Path, found: bytes) -> bool:
    """Whether the file of a fingerprint has the metadata that the fingerprint was made for."""
    path, mtime_ns, size, inode, *_ = found[len(FINGERPRINT) :].split(b"\0")
    stat = _stat(root, text(unescaped(path)))
    numbers = (int(mtime_ns), int(size), int(inode))
    return stat is not None and (stat.st_mtime_ns, stat.st_size, stat.st_ino) == numbers


def _is_valid(root: Path, found: bytes, value: bytes) -> bool:
    stat = _stat(root, last_part(found, len(HASH)))
    return stat is not None and hash_in(value, stat) is not None
