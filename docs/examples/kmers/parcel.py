"""
A parcel passes results from the compute step to the write step: a file in a folder that all workers see.

The log holds the file's name and digest, not the profiles: events record what happened, and large results
are files. The name is the digest, so a parcel that is written twice is the same file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from docs.examples.kmers.profile import Profile


class DamagedParcel(ValueError):
    """A parcel differs from what was packed."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """The profiles of a part, and the words of its shuffled proteins together."""

    profiles: Sequence[Profile]
    chance: Mapping[str, int]


def pack(parcel: Parcel, folder: Path) -> str:
    """Write a parcel, safe on disk before its name is told; the digest, which is its name."""
    packed = json.dumps([[asdict(one) for one in parcel.profiles], parcel.chance], sort_keys=True).encode()
    digest = sha256(packed).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path, half = folder / f"{digest}.json", folder / f"{digest}.{os.getpid()}.half"
    with half.open("wb") as file:
        file.write(packed)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return digest


def unpack(folder: Path, digest: str) -> Parcel:
    """A parcel as it was packed. Raises DamagedParcel, OSError."""
    packed = (folder / f"{digest}.json").read_bytes()
    if sha256(packed).hexdigest() != digest:
        raise DamagedParcel(
            f"{folder / digest}.json is not what was packed; remove it and run its batch again"
        )
    profiles, chance = json.loads(packed)
    return Parcel([Profile(**one) for one in profiles], chance)
