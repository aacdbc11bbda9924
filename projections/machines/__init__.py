"""Machines over all objects: which objects are in which state, how many, since when; past and illegal moves.

    in_state(log, Payment, "submitted", longer_than=timedelta(days=2))     # from the view in_state
    InState(Payment, "submitted").where(key=sql.Identifier("p", "id"))     # a part of your own statement
    illegal(log, "payment")                                                # moves that are not allowed now

Queries of the view are as fresh as the view. An object that never moved is not in the ledger: the view does
not contain it, but `InState` in your own statement finds it.
"""

from .definitions import DefinitionChange, RecordedDefinition, changed, definitions
from .fragments import InState, NotInState
from .illegal_moves import Illegal, IllegalPair, Why, illegal, illegal_pairs
from .info import MachineInfo, machine_info, machines
from .queries import Count, ObjectInState, counts, dwell_of, in_state, not_in_state, stays_of, who_was_in

__all__ = [
    "Count",
    "DefinitionChange",
    "Illegal",
    "IllegalPair",
    "InState",
    "MachineInfo",
    "NotInState",
    "ObjectInState",
    "RecordedDefinition",
    "Why",
    "changed",
    "counts",
    "definitions",
    "dwell_of",
    "illegal",
    "illegal_pairs",
    "in_state",
    "machine_info",
    "machines",
    "not_in_state",
    "stays_of",
    "who_was_in",
]
