"""
Verify: fold every stream, compare the result with what is kept of it, report and repair each difference.

    difference.py  a difference, and the summary of a run
    compare.py     a fold compared with its head
    heads.py       ranges of streams: compare, repair
    commands.py    ranges of positions: the rows of command ids compared with the events that carry them
    repair.py      heads are set by compare-and-set in the database
    run.py         `verify`, `rebuild_heads`, `rebuild_commands`, and further checks, such as views
"""

from .difference import Field, Summary
from .run import rebuild_commands, rebuild_heads, verify

__all__ = [
    "Field",
    "Summary",
    "rebuild_commands",
    "rebuild_heads",
    "verify",
]
