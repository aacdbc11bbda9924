"""
State machines for any object of the user's: the table is a class, each move an event.

    pending ──▶ submitted ──▶ paid
                    └───────▶ cancelled

    class Payment(Machine, name="payment"):
        PENDING = State("pending", initial=True)
        …
        table = (From(PENDING).To(SUBMITTED), From(SUBMITTED).To(PAID, CANCELLED))

    Payment(log, "PM123").transition_to("submitted").execute()

A move is decided on what is recorded and appended at exactly that version: of competitors one wins, the
others get TransitionConflict (spec S2-10 to S2-16).
"""

from .adopting import Adopted, adopt
from .declaring import after, after_commit, before, guard, guard_failure, transition_failure
from .defining import Defined, MachineDefined, MachineDefinition
from .definition import Callback, Definition, Edge, From, Kind, State
from .discovering import discover
from .machine import MACHINES, Machine
from .moving import Move
from .replaying import NotReplayed, PastMove, Replayed, replay
from .retrying import retry_conflicts
from .transition import MachineStream, Moved, Standing, Transition

__all__ = [
    "Adopted",
    "Callback",
    "Defined",
    "Definition",
    "Edge",
    "From",
    "Kind",
    "MACHINES",
    "Machine",
    "MachineDefined",
    "MachineDefinition",
    "MachineStream",
    "Move",
    "Moved",
    "NotReplayed",
    "PastMove",
    "Replayed",
    "Standing",
    "State",
    "Transition",
    "adopt",
    "after",
    "after_commit",
    "before",
    "discover",
    "guard",
    "guard_failure",
    "replay",
    "retry_conflicts",
    "transition_failure",
]
