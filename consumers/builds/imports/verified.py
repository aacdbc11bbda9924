"""
Files in the workspace, compared with the hashes of a lock file: what is still the same keeps its stages.

DVC hashes by MD5, this ledger by SHA-256; one does not follow from the other. A file whose MD5 is that of the
lock is what the stage consumed or made, so its SHA-256 is recorded in place of the MD5.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ..hashing import THREADS, identity_of
from .locked import LockedPath, LockedStage

_FOLDER = ".dir"
"""DVC's mark of a folder's hash."""


class Checked(NamedTuple):
    """What is recorded of a path. agrees: whether its content is there, and is that of the lock file."""

    hash: str
    agrees: bool


class Spot(NamedTuple):
    """A path of a lock file, and its place on this machine."""

    place: Path
    locked: LockedPath


def spots(stages: Iterable[LockedStage]) -> Iterator[Spot]:
    """All dependencies and outputs of stages."""
    for stage in stages:
        for locked in (*stage.deps, *stage.outs):
            yield Spot(stage.place(locked), locked)


def check(stages: Iterable[LockedStage]) -> dict[Spot, Checked]:
    """What is recorded of each path of these stages; each file is read twice, several at a time."""
    found = [*dict.fromkeys(spots(stages))]
    with ThreadPoolExecutor(THREADS, "import") as pool:
        return dict(zip(found, pool.map(_check, found), strict=True))


def _check(spot: Spot) -> Checked:
    """The hash of ours if the content is that of the lock file, else the hash in it."""
    algorithm, _, digest = spot.locked.hash.partition(":")
    if algorithm != "md5":
        return Checked(spot.locked.hash, False)
    try:
        before = _metadata(spot.place)
        if not _same_content(spot.place, digest) or _executable(spot) not in (None, spot.locked.executable):
            return Checked(spot.locked.hash, False)
        identity = identity_of(spot.place)
        same = _metadata(spot.place) == before
    except OSError:
        return Checked(spot.locked.hash, False)
    return Checked(identity.hash, True) if same else Checked(spot.locked.hash, False)


def _same_content(place: Path, digest: str) -> bool:
    """Whether the content has this MD5 of DVC. Raises OSError."""
    if not digest.endswith(_FOLDER):
        return place.is_file() and _md5(place) == digest
    if not place.is_dir():
        return False
    files = [{"md5": _md5(place / path), "relpath": path} for path in sorted(_files(place))]
    listed = json.dumps(files, sort_keys=True).encode()
    return hashlib.md5(listed, usedforsecurity=False).hexdigest() + _FOLDER == digest


def _md5(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files in a folder, with `/`."""
    for above, _, names in os.walk(folder, followlinks=True):
        for name in names:
            yield (Path(above) / name).relative_to(folder).as_posix()


def _metadata(place: Path) -> list[tuple[str, int, int, int]]:
    """Of each file here: its path, time of modification, size and inode. Raises OSError."""
    paths = [""] if place.is_file() else sorted(_files(place))
    stats = ((path, (place / path).stat()) for path in paths)
    return [(path, what.st_mtime_ns, what.st_size, what.st_ino) for path, what in stats]


def _executable(spot: Spot) -> bool | None:
    """Whether a file may be executed; None for a folder, and where the lock file does not say it."""
    if spot.locked.executable is None or not spot.place.is_file():
        return None
    return bool(spot.place.stat().st_mode & 0o100)
