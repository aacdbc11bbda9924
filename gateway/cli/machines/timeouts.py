"""`pledger machines timeouts`: move objects that have been in a state for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Code, Misuse
from ..output import flush
from ..session import AsJson, Session, session_of
from .lookup import Modules, imported_machines

if TYPE_CHECKING:
    from consumers.timeouts import TimeoutCounts
    from ledger.machines import Machine

Once = Annotated[bool, typer.Option("--once", help="Move what is due now, and end.")]


def timeouts(
    context: typer.Context, machines: Modules = None, once: Once = False, as_json: AsJson = False
) -> None:
    """Move objects whose timeout is due, until Ctrl-C.

    Guards are called as for any other move; an object that they refuse is tried again after a minute. The
    view in_state must be followed (`pledger views follow`) or attached. Any number may run: each object is
    moved once.

    \b
    Examples:
      pledger machines timeouts --machines my_shop.payments
      pledger machines timeouts --machines my_shop.payments --once

    JSON, one object at the end: machines, due (objects that the view nominated), moved, refused (by guards),
    waiting (refused recently, not tried again), gone (no longer in the state), failed.

    Exits 1 if a guard or callback raised an error.
    """
    session = session_of(context, as_json)
    total = _run(session, _timed(machines), once=once)
    if total.failed:
        flush()
        raise typer.Exit(Code.REFUSED)


def _run(session: Session, machines: dict[str, type[Machine]], *, once: bool) -> TimeoutCounts:
    """Move due objects, once or until a signal, and report."""
    from consumers.timeouts import TimeoutCounts, Timeouts

    total = TimeoutCounts()

    def report(counts: TimeoutCounts) -> None:
        nonlocal total
        total += _without_failures(counts)
        _print_progress(session, counts)

    with session.ledger("pledger machines timeouts") as log:
        runner = Timeouts(log, machines.values())
        try:
            if once:
                report(runner.run_once())
            else:
                session.say(f"timeouts of {', '.join(machines)}; Ctrl-C ends it")
                runner.run(report=report)
        finally:
            _report(session, [*machines], total)
    return total


def _timed(modules: list[str] | None) -> dict[str, type[Machine]]:
    """The machines with timeouts, by name. Raises Misuse if there is none."""
    known = imported_machines(modules)
    found = {
        name: machine
        for name, machine in sorted(known.items())
        if any(edge.after is not None for edge in machine.definition.edges)
    }
    if not found:
        seen = f"none of {', '.join(sorted(known))} has a timeout" if known else "no machine is imported"
        raise Misuse(
            f"{seen}: name the module that declares one (--machines my_shop.payments), and declare "
            "From(A).To(B, after=timedelta(hours=1)) in its table"
        )
    return found


def _without_failures(counts: TimeoutCounts) -> TimeoutCounts:
    """The counts alone: failures are printed at once."""
    from dataclasses import replace

    return replace(counts, failures=())


def _print_progress(session: Session, counts: TimeoutCounts) -> None:
    """Print the counts of a pass, and each failure."""
    if counts.moved or counts.refused:
        session.say(f"{counts.moved} moved, {counts.refused} refused")
    for failure in counts.failures:
        error = f"{type(failure.error).__name__}: {failure.error}"
        session.say(f"{failure.stream} cannot be moved to {failure.to_state}: {error}")


def _report(session: Session, names: list[str], total: TimeoutCounts) -> None:
    from consumers.timeouts import OUTCOMES

    counts = {"due": total.due, **{name: getattr(total, name) for name in OUTCOMES}}
    session.print_fields({"machines": names, **counts})
