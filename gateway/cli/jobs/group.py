"""The groups of commands: `pledger jobs`, `worker`, `reaper`, `dead`, `queues`, `operations`, `schedules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from . import change, dead, queues, schedules, show, submit, worker

GROUPS: Final[Mapping[str, tuple[str, Mapping[str, Callable[..., Any]]]]] = {
    "jobs": (
        "Jobs: submit, look, wait, cancel, retry.",
        {
            "submit": submit.submit, "list": show.list_, "show": show.show, "result": show.result,
            "events": show.events, "wait": submit.wait, "cancel": change.cancel, "retry": change.retry,
            "comment": change.comment, "describe": change.describe,
        },
    ),
    "worker": ("Workers: run operations, list them.", {"run": worker.run, "list": worker.list_}),
    "reaper": ("The reaper: ends claims of vanished workers.", {"run": worker.run_reaper}),
    "dead": (
        "Dead letters: what failed, why, redriving or discarding it.",
        {"list": dead.list_, "show": dead.show, "redrive": dead.redrive, "discard": dead.discard},
    ),
    "queues": (
        "Queues: what waits where, and pausing it.",
        {"list": queues.list_queues, "pause": queues.pause, "resume": queues.resume},
    ),
    "operations": (
        "Limits of operations across all workers.",
        {"limit": queues.limit, "list": queues.list_operations},
    ),
    "schedules": (
        "Jobs that are submitted again and again.",
        {
            "set": schedules.set_, "list": schedules.list_, "show": schedules.show,
            "pause": schedules.pause, "resume": schedules.resume, "remove": schedules.remove,
            "next": schedules.next_,
        },
    ),
}  # fmt: skip
"""Name, help and commands of each."""


def add_to(app: typer.Typer) -> None:
    """Add the groups."""
    for name, (help, commands) in GROUPS.items():
        group = typer.Typer(help=help, rich_markup_mode=None)
        for word, command in commands.items():
            group.command(word)(command)
        app.add_typer(group, name=name)
