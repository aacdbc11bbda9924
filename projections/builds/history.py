"""The runs of a build project, newest first, and what each did; read from the log (spec S4-36)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ledger import Ledger, Unknown
from ledger.builds.manifests import RunManifest
from ledger.builds.run import OpenRun, Run, RunDropped, RunRecorded, RunStarted, RunStatus, manifest_of
from ledger.domain.names import split_name, stream_name

PAGE: Final = 100
BEGINNINGS: Final = [RunStarted.topic, RunRecorded.topic]
"""The topics with which a run begins; runs are ordered by the position of this event (W4-11)."""


class RunOf(NamedTuple):
    """A run, and its state."""

    run: str
    state: Run


def runs(ledger: Ledger, project: str, *, dropped: bool = False) -> Iterator[RunOf]:
    """The runs of a project, newest first. dropped: also those that retention dropped."""
    bound, prefix = ledger.bound(), stream_name(OpenRun.CATEGORY, project) + "/"
    while page := ledger.last(PAGE, bound, topics=BEGINNINGS, prefix=prefix):
        names = [split_name(event.stream)[1][-1] for event in reversed(page) if event.version == 1]
        states = {run.run_id: run.state for run in ledger.load_each(OpenRun(project, name) for name in names)}
        for name in names:
            if dropped or states[name].status != RunStatus.DROPPED:
                yield RunOf(name, states[name])
        bound = page[0].position - 1


def manifest(ledger: Ledger, project: str, run: str) -> tuple[RunManifest | None, RunDropped | None]:
    """The manifest of a run (spec S4-31), and why retention dropped it. Raises StreamNotFound.

    A dropped run's events stay, so its manifest can still be read here.
    """
    facts = [(event.event, event.recorded_at) for event in ledger.read(OpenRun.name_of(project, run))]
    known = [(fact, at) for fact, at in facts if not isinstance(fact, Unknown)]
    drop = next((fact for fact, _ in reversed(known) if isinstance(fact, RunDropped)), None)
    return manifest_of(run, [(fact, at) for fact, at in known if not isinstance(fact, RunDropped)]), drop
