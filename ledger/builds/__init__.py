"""
Builds: stages with inputs and outputs, run only where something changed, and every run's history.

    build_output/PROJECT/PATH     the content of an output; its generation is the stream's version
    build_stage/PROJECT/STAGE     claims, completions and failures of a stage
    build_run/PROJECT/RUN         a run, written while it goes on
    build_remote/PROJECT/REMOTE   which contents a remote holds

The completion of a stage is one append over its stage, its run and its changed outputs. What is a cache and
not history (hashes of files, fingerprints of code) is not in the log, but in the local copy.
"""

from ..domain.domain import Domain
from .inputs import Declared, OutSpec
from .manifests import (
    DeferredWrites,
    DirManifestEntry,
    OutputHashEntry,
    RunCacheEntry,
    RunManifest,
    StageRunRecord,
    StageStatus,
)
from .output import OpenOutput, Output
from .remote import OpenRemote, Remote
from .run import OpenRun, Run, RunStatus
from .skip import Action, Decision, Tier
from .stage import Dep, How, OpenStage, Out, Stage

DOMAIN = Domain("builds", __name__, views=["projections.builds.runs", "projections.builds.stages"])

__all__ = [
    "Action",
    "Decision",
    "Declared",
    "DeferredWrites",
    "Dep",
    "DirManifestEntry",
    "How",
    "OpenOutput",
    "OpenRemote",
    "OpenRun",
    "OpenStage",
    "Out",
    "OutSpec",
    "Output",
    "OutputHashEntry",
    "Remote",
    "Run",
    "RunCacheEntry",
    "RunManifest",
    "RunStatus",
    "Stage",
    "StageRunRecord",
    "StageStatus",
    "Tier",
]
