"""The output for the user: progress; then the state, a strip's history, the past, and the commands to use."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

from past import as_of, events_of
from plan import Plan
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ledger import Ledger, Recorded
from ledger.pipelines import LSMProjectStateView, LSMStateService

if TYPE_CHECKING:
    from kafka_copy import Copied


class Rate(ProgressColumn):
    """Strips a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.1f}/s", style="progress.data.speed")


class Progress:
    """A bar on stderr, and lines above it for what is worth a word."""

    def __init__(self, total: int) -> None:
        self.console = Console(stderr=True, highlight=False)
        columns = (TextColumn("strips"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
        self.bar = Bar(*columns, console=self.console)
        self.task = self.bar.add_task("strips", total=total)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def count(self, completed: int) -> None:
        self.bar.update(self.task, completed=completed)

    def say(self, text: str) -> None:
        self.bar.print(text)


def print_story(log: Ledger, plan: Plan, out: Path, strip: str) -> int:
    """The state, the history of one strip, the past, and where all of it lies; how many events there are."""
    console = Console(highlight=False)
    now = LSMStateService(log).read_project(plan.project)
    console.print(project_table(now, f"Project {plan.project}"), "")
    console.print(history_table(log.read(strip), f"Who did what to {strip}"), "")
    events = events_of(log, plan.project)
    ends = [number for number, recorded in enumerate(events) if recorded.topic == "lsm.strip.completed"]
    middle = ends[len(ends) // 2]
    title = f"The project as of position {events[middle].position}, {clock(events[middle])}: half-way"
    console.print(project_table(as_of(log, plan.project, events[middle].position), title), "")
    print_places(log, plan, out, strip)
    return len(events)


def plain_table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def project_table(project: LSMProjectStateView, title: str) -> Table:
    """A line for each channel: how far its strips are, and whether it has its projection."""
    table = plain_table(title)
    for name in ("slice", "channel", "state"):
        table.add_column(name)
    for name in ("strips", "compressed", "archived", "done", "tries", "stitched"):
        table.add_column(name, justify="right")
    for slice_id, each in project.slices.items():
        for channel_id, channel in each.channels.items():
            strips = channel.strips.values()
            counts = [
                len(strips),
                sum(strip.compressed for strip in strips),
                sum(strip.archived for strip in strips),
                sum(strip.succeeded for strip in strips),
                sum(strip.attempts for strip in strips),
            ]
            stitched = "yes" if channel.mip_stitched else "-"
            table.add_row(
                str(slice_id), str(channel_id), channel.processing_state, *map(str, counts), stitched
            )
    return table


def history_table(history: Iterable[Recorded], title: str) -> Table:
    """A line for each event: when the ledger recorded it, who did it, and what."""
    table = plain_table(title)
    for name in ("version", "position"):
        table.add_column(name, justify="right")
    for name in ("time", "who", "what", "why"):
        table.add_column(name, overflow="fold")
    for recorded in history:
        what, why = recorded.topic.rpartition(".")[2], getattr(recorded.event, "reason", None) or ""
        who = recorded.meta.actor or ""
        table.add_row(str(recorded.version), str(recorded.position), clock(recorded), who, what, why)
    return table


def clock(recorded: Recorded) -> str:
    """The ledger's time of an event, as the clock here shows it."""
    return f"{recorded.recorded_at.astimezone():%H:%M:%S.%f}"[:-3]


def print_places(log: Ledger, plan: Plan, out: Path, strip: str) -> None:
    """Where the data lies, and commands that look further; as they are, so that they can be pasted."""
    print(f"archive       {out / 'archive'}   each strip: numpy.load(lzma.open(PATH))")
    print(f"projections   {out / 'projections'}")
    print(f"ledger        {log.address.printable}")
    print("look further:")
    for command in (f"lsm show {plan.project}", f"history {strip}", "tail"):
        print(f"  {pledger(log)} {command}")


def print_copied(copied: Copied) -> dict[str, object]:
    """What came through Kafka; as parts of the result, too."""
    print(f"kafka         {copied.published} events of the ledger in topics {copied.prefix}.…")
    print(f"  the consumer counted {copied.counted} completed strips, each once")
    print(f"  the view in the other database has {copied.in_state} completed strips")
    return {"kafka": asdict(copied)}


def pledger(log: Ledger) -> str:
    """The command line beside this interpreter, with the ledger's place unless the environment names it."""
    beside = Path(sys.executable).with_name("pledger")
    words = [near(beside)] if beside.exists() else [near(Path(sys.executable)), "-m", "gateway.cli.main"]
    if log.address.source in ("--dsn", "embedded"):
        words += ["--dsn", log.address.printable]
    return shlex.join(words)


def near(path: Path) -> str:
    """A path as it is short from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
