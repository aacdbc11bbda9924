"""The view `build_stages`: one row per stage of a build, its state."""

from __future__ import annotations

from ledger.builds.stage import CacheEntryWritten, DepsRecorded, OpenStage, StageClaimed, StageCompleted

from ..engine.state_view import StateView
from ..engine.view import parts

_SQL = parts(__package__, "stages")


class BuildStages(StateView):
    """The stages of builds: table `build_stages`. A row is the state of the stage."""

    name = "build_stages"
    streams = (OpenStage,)
    born = tuple(fact.topic for fact in (StageClaimed, StageCompleted, DepsRecorded, CacheEntryWritten))
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    picks = {"project": _SQL["project"], "stage": _SQL["stage"]}
    forget = (_SQL["forget"],)
