"""What cannot be run is said in a sentence before anything is started; how images of all kinds are cut."""

from __future__ import annotations

import gc
import importlib.util
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tifffile
from imageio.v3 import imwrite

from tests.demo.conftest import RUN

NOWHERE = "host=/nowhere"  # whoever connects to it fails with another sentence


def example(name: str) -> ModuleType:
    """A module of the example, which is no package."""
    spec = importlib.util.spec_from_file_location(f"lsm_pipeline_{name}", RUN.with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder of folders with bad images."""
    for name in ("empty", "text", "float", "used", "mixed"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "a.png").write_text("no picture")
    tifffile.imwrite(tmp_path / "float" / "a.tif", np.zeros((4, 4), "f4"))
    (tmp_path / "used" / "thesis.txt").write_text("mine")
    with tifffile.TiffWriter(tmp_path / "mixed" / "a.tif") as file:
        for size in (4, 8):
            file.write(np.zeros((size, size), "u1"))
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[list[str]], int]]:
    """The demo's `main` in this process, in a folder of this test; its libraries take a second to load."""
    monkeypatch.syspath_prepend(str(RUN.parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_DSN", NOWHERE)
    before = signal.getsignal(signal.SIGTERM)
    found: Callable[[list[str]], int] = example("run").main
    yield found
    signal.signal(signal.SIGTERM, before)
    gc.collect()  # what imageio cannot read, it leaves open


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--input missing", "is not a folder"),
        ("--input empty", "holds no image"),
        ("--input text", "a.png cannot be read as an image"),
        ("--input float", "has float32 pixels: 8 or 16 bit"),
        ("--input mixed", "holds 2 images of different shape"),
        ("--out used", "not the folder of a run"),
        ("--out used/thesis.txt", "cannot be used"),
        ("--project ../up", "cannot name a folder"),
        ("--workers 0", "from 1 to 1000"),
    ],
)
def test_what_cannot_be_run(
    run: Callable[[list[str]], int],
    folders: Path,
    arguments: str,
    sentence: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = sorted(folders.rglob("*"))
    try:
        code: object = run(arguments.split())
    except SystemExit as end:
        code = end.code
    shown = capfd.readouterr()
    assert (code, shown.out) == (2, "")
    assert sentence in shown.err
    assert "Traceback" not in shown.err
    assert sorted(folders.rglob("*")) == before


def test_a_ledger_that_is_not_there_is_said(demo: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ran = demo(LEDGER_DSN=NOWHERE)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr


@pytest.mark.slow  # four runs of the demo
def test_a_run_is_not_mixed_with_another(
    demo: Callable[..., subprocess.CompletedProcess[str]], images: dict[str, list[Any]], tmp_path: Path
) -> None:
    options = ("--input", "images", "--strips", "1", "--no-kill", "--workers", "1", "--json")
    first = demo(*options, "--out", "here", "--project", "first")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout.splitlines()[-1])["completed"] == 5
    again = demo(*options[:2], "--strips", "2", "--out", "here", "--project", "first")
    assert (again.returncode, "cut otherwise" in again.stderr) == (2, True), again.stderr
    elsewhere = demo(*options, "--out", "there", "--project", "first")
    assert (elsewhere.returncode, "are missing" in elsewhere.stderr) == (2, True), elsewhere.stderr
    imwrite(tmp_path / "images" / "b.png", np.zeros((5, 5), "u1"))
    changed = demo("--out", "here", "--project", "first")
    assert (changed.returncode, "other pixels" in changed.stderr) == (2, True), changed.stderr


@pytest.fixture(scope="module")
def image() -> ModuleType:
    """The example's module of this name."""
    return example("image")


@pytest.mark.parametrize(
    ("name", "shape", "kind", "channels", "depth"),
    [
        ("grey.png", (9, 5), "u1", 1, 1),
        ("deep.png", (9, 5), "u2", 1, 1),
        ("alpha.png", (9, 5, 2), "u1", 1, 1),
        ("colour.png", (9, 5, 3), "u1", 3, 1),
        ("clear.png", (9, 5, 4), "u1", 3, 1),
        ("grey.jpg", (9, 5), "u1", 1, 1),
        ("colour.JPEG", (9, 5, 3), "u1", 3, 1),
        ("grey.tif", (9, 5), "u2", 1, 1),
        ("big.tiff", (9, 5), ">u2", 1, 1),
        ("pages.tif", (6, 9, 5), "u2", 1, 6),
        ("colours.tif", (9, 5, 3), "u2", 3, 1),
    ],
)
def test_images_of_all_kinds(
    image: ModuleType, tmp_path: Path, name: str, shape: tuple[int, ...], kind: str, channels: int, depth: int
) -> None:
    pixels = np.arange(np.prod(shape)).astype(kind).reshape(shape)
    write = tifffile.imwrite if "tif" in name else imwrite
    write(tmp_path / name, pixels)
    (found,) = [image.from_file(path) for path in image.image_files(tmp_path)]
    assert [channel.shape for channel in found] == [(depth, 9, 5)] * channels
    assert {channel.dtype for channel in found} == {np.dtype(f"<u{pixels.itemsize}")}
    if "j" not in name.lower():  # JPEG keeps no pixel as it was
        colours = pixels if pixels.ndim == 3 and depth == 1 else pixels[..., None]
        assert all(
            np.array_equal(found[k].reshape(colours[..., k].shape), colours[..., k]) for k in range(channels)
        )


def test_channels_of_a_hyperstack(image: ModuleType, tmp_path: Path) -> None:
    pixels = np.arange(3 * 2 * 9 * 5, dtype="u2").reshape(3, 2, 9, 5)
    tifffile.imwrite(tmp_path / "a.tif", pixels, imagej=True, metadata={"axes": "ZCYX"})
    found = image.from_file(tmp_path / "a.tif")
    assert len(found) == 2
    assert all(np.array_equal(found[k], pixels[:, k]) for k in range(2))


def test_the_sample_is_four_bands_of_three_stains(image: ModuleType) -> None:
    images = image.Images(None)
    shapes = [channel.shape for number in range(1, images.count + 1) for channel in images.channels(number)]
    assert shapes == [(1, 128, 512)] * 12
    pieces = [images.strip(1, 3, number, 7) for number in range(1, 8)]
    assert np.array_equal(np.concatenate(pieces, axis=2), images.channels(1)[2])
