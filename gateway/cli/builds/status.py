"""`pledger builds status`: what is recorded of the stages of a build file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..output import Column, plain, titled
from ..session import AsJson, session_of
from .options import STATUSES, File, build_file_of, seconds

if TYPE_CHECKING:
    from ledger.builds.stage import Stage

Stages = Annotated[list[str] | None, typer.Argument(metavar="[STAGE]...", help="Only these stages.")]


class Known(NamedTuple):
    """A stage, and what is recorded of it."""

    stage: str
    state: Stage


def status(context: typer.Context, stages: Stages = None, file: File = None, as_json: AsJson = False) -> None:
    """Show what is recorded of each stage of a build file.

    That is its last completion: how (ran, restored from the content cache, committed, imported), in which run
    and when; and the runner that has it now. `pledger builds run --dry-run` compares it with the files.

    JSON, one object per line: stage, status (null: nothing is recorded), how, run, completed_at, duration_ms,
    reason, runner, input_hash.
    """
    session = session_of(context, as_json)
    build = build_file_of(file)
    with session.ledger() as log:
        from ledger.builds.stage import OpenStage

        wanted = [name for name in build.stages if not stages or name in stages]
        found = {
            one.stage: one.state for one in log.load_each(OpenStage(build.project, name) for name in wanted)
        }
    columns = [
        *titled("stage", "status", "how", "completed"), Column("seconds", number=True), Column("run"),
        Column("reason", keep=True),
    ]  # fmt: skip
    rows = [Known(name, found[name]) for name in wanted]
    session.print_rows(rows, columns, _row, data=_data, styles=STATUSES)


def _row(known: Known) -> list[Any]:
    state = known.state
    took = seconds(state.duration_ms) if state.completed_at else ""
    held = f"held by {state.runner}" if state.runner else state.reason
    return [known.stage, state.status or "", state.how, state.completed_at, took, state.completed_in, held]


def _data(known: Known) -> dict[str, Any]:
    state = known.state
    told: dict[str, Any] = plain({
        "stage": known.stage, "status": state.status, "how": state.how, "run": state.completed_in,
        "completed_at": state.completed_at, "duration_ms": state.duration_ms, "reason": state.reason,
        "runner": state.runner, "input_hash": state.input_hash,
    })  # fmt: skip
    return told
