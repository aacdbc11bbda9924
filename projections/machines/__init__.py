"""
Machines over all objects: who is in which state, how many, since when; histories, and their faults.

    in_state(log, Payment, "submitted", longer_than=timedelta(days=2))     # from the view in_state
    InState(Payment, "submitted").where(key=sql.Identifier("p", "id"))     # a part of your own statement
    illegal(log, "payment")                                                # moves that are not allowed now

What is asked of the view is as fresh as the view. An object that never moved is in the ledger nowhere: a
fragment in your own statement finds it, a query of the view cannot.
"""

from .checking import Illegal, IllegalPair, Why, illegal, illegal_pairs
from .definitions import Changed, Numbered, changed, definitions
from .fragments import InState, NotInState
from .known import Known, known_machine, machines
from .past import dwell_of, stays_of, who_was_in
from .queries import Count, Placed, counts, in_state, not_in_state

__all__ = [
    "Changed",
    "Count",
    "Illegal",
    "IllegalPair",
    "InState",
    "Known",
    "NotInState",
    "Numbered",
    "Placed",
    "Why",
    "changed",
    "counts",
    "definitions",
    "dwell_of",
    "illegal",
    "illegal_pairs",
    "in_state",
    "known_machine",
    "machines",
    "not_in_state",
    "stays_of",
    "who_was_in",
]
