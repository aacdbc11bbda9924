"""
The fold of all streams, in parallel: what the events of each come to, as its class says.

    moves.py       the status that a topic leads to, as this process knows it and as it was declared
    fold.py        one stream
    partitions.py  which streams are folded, and ranges of them that are about equally large
    range.py       all streams of a range, each beside its head, in one snapshot
    processes.py   work on ranges in several processes
    child.py       what runs in each of them
"""

from .fold import Fold, Folder, Problem
from .partitions import ALL, Partition, Which, partitions
from .processes import Place, Work, in_processes
from .range import HeadRow, Session, folds_of

__all__ = [
    "ALL",
    "Fold",
    "Folder",
    "HeadRow",
    "Partition",
    "Place",
    "Problem",
    "Session",
    "Which",
    "Work",
    "folds_of",
    "in_processes",
    "partitions",
]
