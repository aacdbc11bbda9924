"""The view `build_runs`: one row per run of a build, its state; and how far each run is."""

from __future__ import annotations

from ledger.builds.run import OpenRun, RunRecorded, RunStarted

from ..engine.state_view import StateView
from ..engine.view import parts

_SQL = parts(__package__, "runs")


class BuildRuns(StateView):
    """The runs of builds: table `build_runs`, view `build_progress`. A row is the state of the run."""

    name = "build_runs"
    streams = (OpenRun,)
    born = (RunStarted.topic, RunRecorded.topic)
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    picks = {"project": _SQL["project"], "run": _SQL["run"]}
    forget = (_SQL["forget"],)
    reads = _SQL["reads"]
