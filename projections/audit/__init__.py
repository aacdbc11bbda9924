"""Audit: the past of streams, what changed and who changed it, why, and who was in which status when."""

from .blame import Blame, blame
from .chain import Why, why
from .differences import Change, Difference, Differences, changes, diff, path_text
from .fold import past
from .moments import AsOf, Moment, as_of
from .states import Axis, Count, Dwell, InState, Question, Stay, counts, dwell, states, stays

__all__ = [
    "AsOf",
    "Axis",
    "Blame",
    "Change",
    "Count",
    "Difference",
    "Differences",
    "Dwell",
    "InState",
    "Moment",
    "Question",
    "Stay",
    "Why",
    "as_of",
    "blame",
    "changes",
    "counts",
    "diff",
    "dwell",
    "past",
    "path_text",
    "states",
    "stays",
    "why",
]
