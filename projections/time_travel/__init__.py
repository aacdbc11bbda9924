"""
The whole ledger as of a position or a time: views, counters and states together, in a schema of its own.

    past = as_of(log, time=yesterday)      # makes the schema ledger_as_of_1234
    SET search_path TO ledger_as_of_1234   -- and query: in_state, in_state_counts, progress, heads, events, …

The schema always holds a prefix of the log, so everything in it is consistent; the answer contains its
position. The same statements that follow the log fill the views, and states are folded like those of heads.
Topics have their present meaning, also for the past. A schema is complete when its table `as_of` exists, and
only then may readers use it.
"""

from .past import Past
from .travel import as_of, drop, pasts

__all__ = ["Past", "as_of", "drop", "pasts"]
