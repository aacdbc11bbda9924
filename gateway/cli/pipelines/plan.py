"""`pledger lsm|psoct plan`: the expected numbers of children, which readiness and reports use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ledger.pipelines import Pipeline

from ..session import AsJson, session_of
from .options import TIMEOUT, Project, Timeout, Totals
from .target import found, store_of

if TYPE_CHECKING:
    from ledger.pipelines import ProjectStore


def plan(
    context: typer.Context,
    pipeline: Pipeline,
    project: Project,
    totals: Totals,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show the plan of a project, or change it.

    A number replaces the former one; 0 removes it. A project that does not exist is created. Without numbers
    the plan is shown.

    \b
    Examples:
      pledger {pipeline} plan brain_7 --{total} 4
      pledger {pipeline} plan brain_7

    JSON: project, and each number; null if it is not planned.
    """
    session = session_of(context, as_json)
    given = {name: number or None for name, number in totals.items() if number is not None}
    with store_of(session, pipeline) as store:
        if given and _plan(store, pipeline, project, given, timeout):
            session.say(f"project {project!r} did not exist; it was created")
        view = found(store, pipeline, project, {})
    planned = {name: getattr(view, name) for name in pipeline.totals}
    shown = {name: "" if number is None else number for name, number in planned.items()}
    session.print_fields({"project": view.project_name, **planned}, shown)


def _plan(store: ProjectStore, pipeline: Pipeline, project: str, given: Totals, timeout: float) -> bool:
    """Record the plan. Returns whether this created the project."""

    def change(opened: Any) -> bool:
        made = bool(opened.news)
        opened.plan(**given)
        return made

    new: bool = store.update_item(pipeline.ident(project, {}), change, timeout_seconds=timeout)
    return new
