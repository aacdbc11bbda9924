"""Audit: the past of streams, what changed and who changed it, why, and who was in which status when."""

from .blame import Blame, Line, blame, leaves
from .chain import Node, Why, why
from .differences import ABSENT, Change, Difference, Differences, Step, applied, changes, diff, path_text
from .folding import past, stream_of, tree_of
from .moments import NOW, AsOf, Moment, as_of, parse_span, parse_time
from .states import Axis, Count, Dwell, InState, Question, Stay, counts, dwell, states, stays

__all__ = [
    "ABSENT",
    "AsOf",
    "Axis",
    "Blame",
    "Change",
    "Count",
    "Difference",
    "Differences",
    "Dwell",
    "InState",
    "Line",
    "Moment",
    "NOW",
    "Node",
    "Question",
    "Stay",
    "Step",
    "Why",
    "applied",
    "as_of",
    "blame",
    "changes",
    "counts",
    "diff",
    "dwell",
    "leaves",
    "parse_span",
    "parse_time",
    "past",
    "path_text",
    "states",
    "stays",
    "stream_of",
    "tree_of",
    "why",
]
