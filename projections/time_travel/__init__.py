"""
The whole ledger as of a position or a time: views, counters and states together, in a schema of its own.

    past = as_of(log, time=yesterday)      # makes the schema ledger_as_of_1234
    SET search_path TO ledger_as_of_1234   -- and query: in_state, in_state_counts, progress, heads, events, …

Always a prefix of the log, so that everything in it agrees; the answer names its position. The views are
filled by the statements that follow the log, the states are folded as heads are. What topics mean is taken as
it is known now, also for the past. A schema is whole when its table `as_of` is there, and readers may enter
it only then.
"""

from .making import Making
from .past import Past
from .travelling import as_of, drop, pasts

__all__ = ["Making", "Past", "as_of", "drop", "pasts"]
