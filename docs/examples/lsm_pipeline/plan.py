"""The plan of a run and the places of its files: written once, read by every worker."""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import IO, Final

from archive import store
from image import Images

from ledger.pipelines import LSMChannelId, LSMProjectStateView, LSMStripId

RUNS: Final = Path("lsm-runs")
PLAN, LOCK = "plan.json", "crew.lock"
STRIPS: Final = 8
PATIENCE: Final = 60.0  # seconds for the workers of an interrupted run to finish the strips in their hands


class BadPlan(Exception):
    """A run that is not possible; the message contains the reason and what is valid."""


@dataclass(frozen=True)
class Plan:
    """One run: its project, its input, and how the input is cut.

    input: the user's folder, None for the sample image. channels, strips: how many, for each slice; all
    channels of a slice are cut alike. pixels: SHA-256 of all that is to be archived.
    """

    project: str
    input: str | None
    channels: list[int]
    strips: list[int]
    pixels: str

    @classmethod
    def make(cls, project: str, folder: Path | None, strips: int) -> Plan:
        """Read every image and decide how it is cut, no strip without a column. Raises BadImage."""
        images = Images(folder)
        slices = [images.channels(slice_id) for slice_id in range(1, images.count + 1)]
        return cls(
            project=project,
            input=str(folder.resolve()) if folder else None,
            channels=[len(channels) for channels in slices],
            strips=[min(strips, channels[0].shape[2]) for channels in slices],
            pixels=images.digest(),
        )

    @property
    def images(self) -> Images:
        """The images of this run."""
        return Images(Path(self.input) if self.input else None)

    def all_channels(self) -> Iterator[LSMChannelId]:
        for slice_id, channels in enumerate(self.channels, 1):
            for channel_id in range(1, channels + 1):
                yield LSMChannelId(self.project, slice_id, channel_id)

    def strips_of(self, channel: LSMChannelId) -> Iterator[LSMStripId]:
        for strip_id in range(1, self.strips[channel.slice_id - 1] + 1):
            yield LSMStripId(self.project, channel.slice_id, channel.channel_id, strip_id)

    def all_strips(self) -> list[LSMStripId]:
        return [strip for channel in self.all_channels() for strip in self.strips_of(channel)]

    def is_full(self, seen: LSMProjectStateView, channel: LSMChannelId) -> bool:
        """Whether all strips of a channel succeeded, and its projection is still to be made."""
        found = seen.get_channel_by_parts(channel.slice_id, channel.channel_id)
        strips = self.strips[channel.slice_id - 1]
        return found is not None and found.all_succeeded(strips) and not found.mip_stitched

    def is_over(self, seen: LSMProjectStateView) -> bool:
        """Whether every channel has its projection: no worker finds anything to do."""
        found = [
            seen.get_channel_by_parts(channel.slice_id, channel.channel_id) for channel in self.all_channels()
        ]
        return all(channel is not None and channel.mip_stitched for channel in found)

    @classmethod
    def read(cls, out: Path) -> Plan:
        """The plan in a run's folder. Raises BadPlan."""
        try:
            return cls(**json.loads((out / PLAN).read_text()))
        except (OSError, ValueError, TypeError):
            raise BadPlan(
                f"{out} is not empty, and not the folder of a run: give --out another one"
            ) from None


def strip_path(out: Path, strip: LSMStripId) -> Path:
    """Where a strip is archived."""
    folder = out / "archive" / f"slice-{strip.slice_id:03}" / f"channel-{strip.channel_id}"
    return folder / f"strip-{strip.strip_id:03}.npy.xz"


def projection_path(out: Path, channel: LSMChannelId) -> Path:
    """Where a channel's projection lies."""
    return out / "projections" / f"slice-{channel.slice_id:03}-channel-{channel.channel_id}.png"


def planned(
    project: str | None, out: Path | None, folder: Path | None, strips: int | None
) -> tuple[Plan, Path]:
    """The plan that these options ask for, and its folder; what is not said is as it was in a run before.

    Raises BadImage, and BadPlan where the folder holds another plan.
    """
    name = checked_project(project) if project else new_project()
    out = (out or RUNS / name).resolve()
    if not is_used(out):
        return Plan.make(name, folder, strips or STRIPS), out
    before = Plan.read(out)
    folder = folder or (Path(before.input) if before.input else None)
    plan = Plan.make(project or before.project, folder, strips or max(before.strips))
    if plan != before:
        what = "it has another name, other pixels, or is cut otherwise"
        raise BadPlan(
            f"{out} holds the run of project {before.project}, not this one: {what}; name another --out"
        )
    return plan, out


def new_project() -> str:
    """A new name, made of date, time and a random part, because two runs may begin in the same second."""
    return f"demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{token_hex(3)}"


def checked_project(project: str) -> str:
    """The project's name itself, if it can name a folder, too. Raises BadPlan."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", project):
        allowed = "up to 100 letters, digits, '-', '_' and '.', with a letter or a digit first"
        raise BadPlan(f"--project {project!r} cannot name a folder: use {allowed}")
    return project


def is_used(out: Path) -> bool:
    """Whether there is anything in a folder, beside the lock. Raises BadPlan."""
    try:
        return any(path.name != LOCK for path in out.iterdir()) if out.exists() else False
    except OSError as error:
        raise BadPlan(f"--out {out} cannot be used: {error.strerror}") from None


def hold(out: Path) -> IO[bytes]:
    """Make a run's folder, and lock it; the workers inherit the lock. Raises BadPlan.

    Two crews would take each other's workers for dead. Workers whose crew was killed keep the lock until
    they have finished the strips in their hands.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("ab")
    except OSError as error:
        raise BadPlan(f"--out {out} cannot be used: {error.strerror}") from None
    deadline = time.monotonic() + PATIENCE
    while not locked(lock):
        if time.monotonic() > deadline:
            lock.close()
            raise BadPlan(f"another crew is running in {out}: wait until it ends, or name another project")
        time.sleep(0.1)
    return lock


def locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def settled(plan: Plan, out: Path) -> None:
    """Write the plan down, under the lock. Raises BadPlan where another process wrote another meanwhile."""
    if out.parent == RUNS.resolve():
        (RUNS / ".gitignore").write_text("*\n")  # a run inside a repository must not be committed
    if is_used(out) and Plan.read(out) != plan:
        raise BadPlan(f"another process wrote its run to {out} meanwhile: start again")
    store(out / PLAN, json.dumps(asdict(plan), indent=2).encode())


def check_files(plan: Plan, out: Path, seen: LSMProjectStateView) -> None:
    """Refuse to go on without the files that the ledger says are archived. Raises BadPlan."""
    paths = [strip_path(out, strip) for strip in plan.all_strips() if is_done(seen, strip)]
    if missing := [path for path in paths if not path.exists()]:
        raise BadPlan(
            f"the ledger records {len(paths)} strips of {plan.project} as archived, but {len(missing)} "
            f"are missing, such as {missing[0]}: give the --out that they are in, or name another project"
        )


def is_done(seen: LSMProjectStateView, strip: LSMStripId) -> bool:
    found = seen.get_strip(strip)
    return found is not None and found.succeeded
