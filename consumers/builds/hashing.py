"""
What is in files and folders, as one text each: the identity of their content.

A file: the SHA-256 of its bytes, 64 hex digits; `.x` follows where it may be executed. A folder: the
SHA-256 of its manifest, and `.dir`. Links are followed. What a file holds is read only if the hash cache does
not know it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from .paths import bare

EXECUTABLE: Final = ".x"
FOLDER: Final = ".dir"
THREADS: Final = min(8, os.cpu_count() or 1)
"""Files that are read at once: SHA-256 releases the interpreter."""
_TRIES: Final = 3
"""How often a file is read that changes meanwhile."""


class HashCache(Protocol):
    """Hashes of files whose metadata is still the same; it may forget any of them."""

    def get_many(self, files: Sequence[tuple[str, os.stat_result]]) -> Sequence[str | None]:
        """The hash of each file, None where it is not known."""
        ...

    def save_many(self, files: Sequence[tuple[str, os.stat_result, str]], seen_at: int) -> None:
        """Keep hashes of files, with the metadata from before they were read.

        seen_at: nanoseconds since 1970 before the first was read. A file that changed just then may change
        again within the same timestamp, so its hash must not be kept (W4-10).
        """
        ...


class Entry(NamedTuple):
    """A file of a folder, with its path in it; an empty folder has no hash, and a slash at its end."""

    path: str
    hash: str
    size: int


@dataclass(frozen=True, slots=True)
class Identity:
    """What is at a path. manifest: the files of a folder, sorted; None for a file. fresh: it was read now."""

    hash: str
    manifest: tuple[Entry, ...] | None = None
    fresh: bool = field(default=False, compare=False)


class _File(NamedTuple):
    """A file that was found. path: its key in the hash cache. within: its path in its folder."""

    path: str
    within: str
    stat: os.stat_result


Looked = Identity | OSError
"""What is at a path, or why that cannot be said: FileNotFoundError where nothing is."""


def identity_of(path: Path) -> Identity:
    """What is at a path, without a cache. Raises OSError."""
    found = Workspace(path.parent, Forgetful()).look([path.name])[path.name]
    if isinstance(found, OSError):
        raise found
    return found


class Forgetful:
    """A hash cache that knows nothing."""

    def get_many(self, files: Sequence[tuple[str, os.stat_result]]) -> Sequence[str | None]:
        """Nothing."""
        return [None] * len(files)

    def save_many(self, files: Sequence[tuple[str, os.stat_result, str]], seen_at: int) -> None:
        """Keeps nothing."""


class Workspace:
    """The files below a root, and what is in them."""

    def __init__(self, root: Path, cache: HashCache) -> None:
        self.root, self.cache = str(root), cache

    def look(self, paths: Iterable[str]) -> dict[str, Looked]:
        """What is at each path now. One batch of the hash cache; unknown files are read in threads."""
        found: dict[str, list[_File] | OSError] = {}
        single: set[str] = set()
        for path in paths:
            if path not in found:
                found[path] = self._found(path, single)
        files = list({file.path: file for some in found.values() if isinstance(some, list) for file in some
                      if not file.path.endswith("/")}.values())  # fmt: skip
        hashes, fresh = self._hashes(files)
        return {path: _looked(some, path in single, hashes, fresh) for path, some in found.items()}

    def _at(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.root}/{path}"

    def _found(self, path: str, single: set[str]) -> list[_File] | OSError:
        """The files at a path; a single file is noted."""
        try:
            what = os.stat(self._at(path))  # noqa: PTH116 (half the time of Path.stat)
            if stat.S_ISREG(what.st_mode):
                single.add(path)
                return [_File(bare(path), "", what)]
            if stat.S_ISDIR(what.st_mode):
                start = bare(path)
                return list(self._inside(start, "", ((what.st_dev, what.st_ino),)))
            raise OSError(errno.EINVAL, "is no file and no folder")
        except OSError as error:
            return error

    def _inside(self, path: str, within: str, above: tuple[tuple[int, int], ...]) -> Iterator[_File]:
        """All files below a folder. Raises OSError, also for a link that leads back up."""
        empty = True
        with os.scandir(self._at(path)) as entries:
            for entry in entries:
                empty = False
                what, name = entry.stat(), within + _checked(entry.name)
                if stat.S_ISDIR(what.st_mode):
                    this = what.st_dev, what.st_ino
                    if this in above:
                        raise OSError(errno.ELOOP, f"{name} is a link that leads back")
                    yield from self._inside(f"{path}/{entry.name}", f"{name}/", (*above, this))
                elif stat.S_ISREG(what.st_mode):
                    yield _File(f"{path}/{entry.name}", name, what)
                else:
                    raise OSError(errno.EINVAL, f"{name} is no file and no folder")
        if empty and within:
            yield _File(f"{path}/", within, Path(self._at(path)).stat())

    def _hashes(self, files: list[_File]) -> tuple[dict[str, str | OSError], set[str]]:
        """The identity of each file, by its path; and which were read now."""
        known = self.cache.get_many([(file.path, file.stat) for file in files])
        hashes: dict[str, str | OSError] = {}
        unknown = []
        for file, digest in zip(files, known, strict=True):
            if digest is None:
                unknown.append(file)
            else:
                hashes[file.path] = _marked(digest, file.stat)
        if unknown:
            hashes |= self._read(unknown)
        return hashes, {file.path for file in unknown}

    def _read(self, files: list[_File]) -> dict[str, str | OSError]:
        """Read files, and keep their hashes."""
        read: Callable[[_File], tuple[str, os.stat_result] | OSError] = self._digest
        seen_at = time.time_ns()
        if len(files) > 1:
            with ThreadPoolExecutor(THREADS, "hashing") as pool:
                digests = list(pool.map(read, files))
        else:
            digests = [read(file) for file in files]
        kept = [
            (file.path, digest[1], digest[0])
            for file, digest in zip(files, digests, strict=True)
            if not isinstance(digest, OSError)
        ]
        self.cache.save_many(kept, seen_at)
        return {
            file.path: digest if isinstance(digest, OSError) else _marked(*digest)
            for file, digest in zip(files, digests, strict=True)
        }

    def _digest(self, file: _File) -> tuple[str, os.stat_result] | OSError:
        """The SHA-256 of a file, and its metadata from before and after it was read."""
        try:
            for _ in range(_TRIES):
                with Path(self._at(file.path)).open("rb") as opened:
                    before = os.fstat(opened.fileno())
                    digest = hashlib.file_digest(opened, "sha256").hexdigest()
                    after = os.fstat(opened.fileno())
                if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
                    return digest, before
            raise OSError(errno.EBUSY, "changes while it is read")
        except OSError as error:
            return error


def manifest_text(manifest: Iterable[Entry]) -> bytes:
    """A manifest as it is stored and hashed: JSON, a line for each file."""
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in manifest)


def manifest_from(text: bytes) -> tuple[Entry, ...]:
    """The manifest of a text. Raises ValueError."""
    entries = [json.loads(line) for line in text.splitlines()]
    try:
        return tuple(Entry(str(path), str(digest), int(size)) for path, digest, size in entries)
    except TypeError as error:
        raise ValueError(f"no manifest of a folder: {error}") from None


def folder_identity(manifest: Iterable[Entry]) -> Identity:
    """The identity of a folder with these files."""
    entries = tuple(sorted(manifest))
    return Identity(hashlib.sha256(manifest_text(entries)).hexdigest() + FOLDER, entries)


def _looked(
    some: list[_File] | OSError, single: bool, hashes: dict[str, str | OSError], fresh: set[str]
) -> Looked:
    if isinstance(some, OSError):
        return some
    entries = []
    for file in some:
        digest = "" if file.path.endswith("/") else hashes[file.path]
        if isinstance(digest, OSError):
            return digest
        if single:
            return Identity(digest, None, file.path in fresh)
        entries.append(Entry(file.within, digest, file.stat.st_size if digest else 0))
    found = folder_identity(entries)
    return Identity(found.hash, found.manifest, any(file.path in fresh for file in some))


def _marked(digest: str, what: os.stat_result) -> str:
    return digest + EXECUTABLE if what.st_mode & stat.S_IXUSR else digest


def _checked(name: str) -> str:
    """A name of a file that JSON and PostgreSQL can hold. Raises OSError."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, f"the name {name!r} is not UTF-8") from None
    return name
