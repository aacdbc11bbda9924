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

from ..domain.domain import Domain
from .adoption import Adopted, adopt
from .declaration import after, after_commit, before, guard, guard_failure, transition_failure
from .definition import Definition, From, State
from .discovery import discover
from .machine import Machine
from .move import Move
from .replays import PastMove, Replayed, replay
from .transition import MachineState, Transition

DOMAIN = Domain("machines", __name__)

__all__ = [
    "Adopted",
    "Definition",
    "From",
    "Machine",
    "MachineState",
    "Move",
    "PastMove",
    "Replayed",
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
    "transition_failure",
]
