"""
Where the images come from, and how they are cut.

    a section of tissue   -> slice     one image file, or one band of the sample image
    a stain or a colour   -> channel   depth × rows × columns, 8 or 16 bit
    a run of the stage    -> strip     a range of the channel's columns

The sample is the immunohistochemistry image that scikit-image ships: colonic glands under a microscope, 512 ×
512 pixels. Its stains are separated into haematoxylin, eosin and DAB; of eosin there is next to nothing, as
the tissue was not stained with it. It has one plane; a multi-page TIFF of yours has more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import tifffile
from imageio.v3 import imread
from numpy.typing import NDArray
from skimage.color import rgb2hed
from skimage.data import immunohistochemistry

Stack = NDArray[Any]
"""Pixels as depth × rows × columns."""

BANDS: Final = 4
"""Slices that the sample image is cut into."""

TIFF, OTHERS = (".tif", ".tiff"), (".png", ".jpg", ".jpeg")


class BadImage(Exception):
    """An image that cannot be used; the message names it and what is valid."""


class Images:
    """The slices of a run, numbered from 1; read on demand, and cut the same in every process."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: the user's own images; the sample image without one. Raises BadImage."""
        self.files = image_files(folder) if folder else []
        self.count = len(self.files) or BANDS

    def channels(self, slice_id: int) -> Sequence[Stack]:
        """The channels of a slice."""
        return from_file(self.files[slice_id - 1]) if self.files else sample()[slice_id - 1]

    def strip(self, slice_id: int, channel_id: int, strip_id: int, strips: int) -> Stack:
        """One strip of a channel that is cut into `strips`; all numbers from 1."""
        return cut(self.channels(slice_id)[channel_id - 1], strips)[strip_id - 1]

    def digest(self) -> str:
        """SHA-256 of all pixels and their shapes: a run may only be continued on the same images."""
        whole = hashlib.sha256()
        for slice_id in range(1, self.count + 1):
            for channel in self.channels(slice_id):
                whole.update(f"{channel.shape} {channel.dtype} ".encode() + channel.tobytes())
        return whole.hexdigest()


def cut(channel: Stack, strips: int) -> list[Stack]:
    """A channel in strips of columns of equal width; the first ones may be a column wider than the last."""
    return np.array_split(channel, strips, axis=2)


@lru_cache(maxsize=1)
def sample() -> list[list[Stack]]:
    """The sample image: bands of rows, each with its three stains in 16 bit."""
    stains = np.moveaxis(rgb2hed(immunohistochemistry()), 2, 0)  # type: ignore[no-untyped-call]
    channels = [sixteen_bit(stain)[np.newaxis] for stain in stains]
    return [
        list(band)
        for band in zip(*(np.array_split(channel, BANDS, axis=1) for channel in channels), strict=True)
    ]


def sixteen_bit(plane: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Any numbers as 0 … 65535, so that all but the brightest thousandth keep their differences."""
    least, most, greatest = np.quantile(plane, [0, 0.999, 1])
    span = (most if most > least else greatest) - least
    scaled: NDArray[np.uint16] = np.round(np.clip((plane - least) / (span or 1), 0, 1) * 65535).astype("<u2")
    return scaled


def image_files(folder: Path) -> list[Path]:
    """The images in a folder, by name. Raises BadImage where there is none, or one cannot be read."""
    if not folder.is_dir():
        raise BadImage(f"{folder} is not a folder: --input wants one with TIFF, PNG or JPEG images")
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in TIFF + OTHERS)
    except OSError as error:
        raise BadImage(f"{folder} cannot be read: {error.strerror}") from None
    files = [path for path in files if path.is_file() and not path.name.startswith(".")]
    if not files:
        raise BadImage(
            f"{folder} holds no image: put TIFF, PNG or JPEG files in it (.tif .tiff .png .jpg .jpeg)"
        )
    return files


@lru_cache(maxsize=2)
def from_file(path: Path) -> Sequence[Stack]:
    """The channels of an image file. Raises BadImage."""
    try:
        pixels, axes = from_tiff(path) if path.suffix.lower() in TIFF else (imread(path), "YXS")
    except BadImage:
        raise
    except Exception as error:  # the readers of the formats have errors of their own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadImage(f"{path} cannot be read as an image: {reason}") from None
    if pixels.dtype == bool:
        pixels = pixels.astype("u1") * 255
    if pixels.dtype.kind != "u" or pixels.dtype.itemsize > 2:
        raise BadImage(f"{path} has {pixels.dtype} pixels: 8 or 16 bit without sign are needed")
    if not pixels.size:
        raise BadImage(f"{path} has no pixels: its shape is {pixels.shape}")
    return by_channel(pixels.astype(pixels.dtype.newbyteorder("<")), axes[: pixels.ndim])


def from_tiff(path: Path) -> tuple[Stack, str]:
    """The pixels of a TIFF, and a letter for each of its axes."""
    with tifffile.TiffFile(path) as file:
        if len(file.series) != 1:
            raise BadImage(
                f"{path} holds {len(file.series)} images of different shape: put each in a separate file"
            )
        return file.series[0].asarray(), file.series[0].axes


def by_channel(pixels: Stack, axes: str) -> list[Stack]:
    """The channels: colours apart, alpha left out; what is neither rows, columns nor colours is depth."""
    rows, columns = axes.index("Y"), axes.index("X")
    colours = next((axes.index(letter) for letter in "SC" if letter in axes), None)
    depth = [axis for axis in range(len(axes)) if axis not in (rows, columns, colours)]
    if colours is None:
        pixels, colours = pixels[..., np.newaxis], pixels.ndim
    ordered = pixels.transpose(colours, *depth, rows, columns)
    wanted = len(ordered) - 1 if "S" in axes and len(ordered) in (2, 4) else len(ordered)
    return [np.ascontiguousarray(channel.reshape(-1, *channel.shape[-2:])) for channel in ordered[:wanted]]
