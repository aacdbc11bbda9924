"""Stages that another build tool has recorded: lock files of DVC and of pivot, as facts of this ledger."""

from .declared import build_file
from .dvc import read_dvc_lock
from .locked import LockedPath, LockedStage
from .pivot import find_pivot_locks, read_pivot_lock
from .recorded import Imported, record_stages
from .verified import check

__all__ = [
    "Imported",
    "LockedPath",
    "LockedStage",
    "build_file",
    "check",
    "find_pivot_locks",
    "read_dvc_lock",
    "read_pivot_lock",
    "record_stages",
]
