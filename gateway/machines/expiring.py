"""`pledger machines timeouts`: what is in a state for too long is moved, by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..codes import Code, Misuse
from ..printing import fields, flush, json_line
from ..session import AsJson, Session, session_of
from .importing import Modules, imported_machines

if TYPE_CHECKING:
    from consumers.machines import Figures
    from ledger.machines import Machine

Once = Annotated[bool, typer.Option("--once", help="Move what is due now, and end.")]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(timeouts)


def timeouts(
    context: typer.Context, machines: Modules = None, once: Once = False, as_json: AsJson = False
) -> None:
    """Move what is in a state for longer than a transition's `after`, until Ctrl-C.

    Guards are asked as for any other move; what they refuse is asked again after a minute. The view in_state
    must be kept, by `pledger views follow` or by the appends. Any number of runners may run: each object is
    moved once.

    \b
    Examples:
      pledger machines timeouts --machines my_shop.payments
      pledger machines timeouts --machines my_shop.payments --once

    JSON, one object at the end: machines, due (objects that were looked at), moved, refused (by guards),
    waiting (refused a moment ago, and not asked again), gone (not in the state any more), failed.

    Exits 1 where something that a machine calls failed.
    """
    session = session_of(context, as_json)
    total = _run(session, _timed(machines), once=once)
    if total.failed:
        flush()
        raise typer.Exit(Code.REFUSED)


def _run(session: Session, machines: dict[str, type[Machine]], *, once: bool) -> Figures:
    """Move what is due, once or until a signal ends it, and report."""
    from consumers.machines import Figures, Timeouts

    total = Figures()

    def told(figures: Figures) -> None:
        nonlocal total
        total += _without_failures(figures)
        _tell(session, figures)

    with session.ledger() as log:
        runner = Timeouts(log, machines.values())
        try:
            if once:
                told(runner.run_once())
            else:
                session.say(f"timeouts of {', '.join(machines)}; Ctrl-C ends it")
                runner.run(told=told)
        finally:
            _report(session, [*machines], total)
    return total


def _timed(modules: list[str] | None) -> dict[str, type[Machine]]:
    """The machines that have timeouts, by name. Raises Misuse where none has."""
    known = imported_machines(modules)
    found = {
        name: machine
        for name, machine in sorted(known.items())
        if any(edge.after is not None for edge in machine.definition.edges)
    }
    if not found:
        seen = f"none of {', '.join(sorted(known))} has a timeout" if known else "no machine is known here"
        raise Misuse(
            f"{seen}: name the module that declares one (--machines my_shop.payments), and say "
            "From(A).To(B, after=timedelta(hours=1)) in its table"
        )
    return found


def _without_failures(figures: Figures) -> Figures:
    """The counts alone: what is said at once need not be kept."""
    from dataclasses import replace

    return replace(figures, failures=())


def _tell(session: Session, figures: Figures) -> None:
    """Progress, where something came of a look; and each failure."""
    if figures.moved or figures.refused:
        session.say(f"{figures.moved} moved, {figures.refused} refused")
    for failure in figures.failures:
        error = f"{type(failure.error).__name__}: {failure.error}"
        session.say(f"{failure.stream} cannot be moved to {failure.to_state}: {error}")


def _report(session: Session, names: list[str], total: Figures) -> None:
    from consumers.machines import OUTCOMES

    counts = {"due": total.due, **{name: getattr(total, name) for name in OUTCOMES}}
    if session.json:
        json_line({"machines": names, **counts})
    else:
        pairs = [("machines", ", ".join(names)), *((name, str(count)) for name, count in counts.items())]
        fields(pairs, color=session.color)
