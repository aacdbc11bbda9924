"""
Verify: fold every stream, compare what is kept of it with what it comes to, name each difference, mend it.

    difference.py  a difference, and the sum of a run
    comparing.py   a fold beside its head
    heads.py       ranges of streams: compare, mend
    commands.py    ranges of positions: the rows of command ids beside the events that carry them
    mending.py     heads are set by compare-and-set in the database
    checks.py      what else can be compared: views
    running.py     `verify`, `rebuild_heads`, `rebuild_commands`
"""

from .checks import Check
from .difference import Difference, Field, Kind, Summary
from .running import rebuild_commands, rebuild_heads, verify

__all__ = [
    "Check",
    "Difference",
    "Field",
    "Kind",
    "Summary",
    "rebuild_commands",
    "rebuild_heads",
    "verify",
]
