"""
The fold of all streams, in parallel: the state of each, by the `evolve` of its class.

    stream.py      one stream
    partitions.py  which streams are folded, in ranges of about equal size
    range.py       all streams of a range, each with its head, in one snapshot
    processes.py   work on ranges in several processes
"""

from .partitions import ALL, Partition, Which, partitions
from .processes import Place, Work, in_processes
from .range import FoldSession, HeadRow, SessionWork, folds_of
from .stream import Fold, Folder, Problem

__all__ = [
    "ALL",
    "Fold",
    "FoldSession",
    "Folder",
    "HeadRow",
    "Partition",
    "Place",
    "Problem",
    "SessionWork",
    "Which",
    "Work",
    "folds_of",
    "in_processes",
    "partitions",
]
