"""
The archive on disk: strips as they are kept, and the projections made from them.

A strip is an ordinary `.npy` file in an ordinary `.xz`: `numpy.load(lzma.open(path))` reads it, and so will
anything else in twenty years.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from image import Stack
from imageio.v3 import imwrite

SAMPLE = 1 << 15  # bytes on which the ways to compress are compared, so that a large strip takes no hour


class DamagedStrip(Exception):
    """The compressed bytes do not give the same pixels again."""


def compressed(strip: Stack) -> bytes:
    """The strip as `.npy.xz`, in the way that suits its pixels best: every way is tried on a sample of it."""
    plain = npy(strip)
    best = min(ways(strip), key=lambda way: len(xz(plain[:SAMPLE], way)))
    return xz(plain, best)


def ways(strip: Stack) -> Iterator[list[dict[str, Any]]]:
    """Filters of LZMA worth trying: pixels as they are, or as the difference to the left or upper one."""
    pixel, row = strip.itemsize, strip.itemsize * strip.shape[2]
    for distance in (0, pixel, row) if row <= 256 else (0, pixel):
        delta = [{"id": lzma.FILTER_DELTA, "dist": distance}] if distance else []
        for context in range(4):
            for bits in ((0, 0), (0, 1), (1, 0)):
                coder = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20}
                yield [*delta, {**coder, "lc": context, "lp": bits[0], "pb": bits[1]}]


def xz(plain: bytes, way: list[dict[str, Any]]) -> bytes:
    return lzma.compress(plain, check=lzma.CHECK_SHA256, filters=way)


def npy(strip: Stack) -> bytes:
    file = io.BytesIO()
    np.save(file, strip, allow_pickle=False)
    return file.getvalue()


def unpacked(data: bytes) -> Stack:
    """The strip in the bytes of a `.npy.xz`."""
    strip: Stack = np.load(io.BytesIO(lzma.decompress(data)), allow_pickle=False)
    return strip


def check(data: bytes, strip: Stack) -> None:
    """Raise DamagedStrip unless the compressed bytes give the strip again, by SHA-256 of shape and pixels."""
    if digest(unpacked(data)) != digest(strip):
        raise DamagedStrip(
            "the compressed strip does not give its pixels again: is the memory of this machine sound?"
        )


def digest(strip: Stack) -> str:
    return hashlib.sha256(npy(strip)).hexdigest()


def store(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, also after a kill or a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name, too, must be on the disk before the ledger says so
    finally:
        os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what workers that were killed had begun to write."""
    for part in folder.rglob("*.part"):
        part.unlink()


def projection(strips: Iterable[Path]) -> bytes:
    """PNG of a channel: its strips, read back, side by side, each as the maximum over its depth."""
    planes = [unpacked(path.read_bytes()).max(axis=0) for path in strips]
    return imwrite("<bytes>", np.hstack(planes), extension=".png")
