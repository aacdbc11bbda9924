"""
An output of a build: the content that a stage last made, by its hash.

    unknown ──▶ content A (generation 1) ──▶ content B (generation 2) ──▶ content A (generation 3)

Its **generation is the version of its stream**: one event for each change of the content's identity, and none
where the hash stays equal (W4-02). A generation therefore names one content for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..domain.event import Event
from ..domain.moves import Moves
from ..domain.stream import Stream


class OutputChanged(Event, topic="build.output_changed"):
    """The output has other content. hash: None where the content is not known.

    stage, run: which made it, where known.
    """

    hash: str | None = None
    stage: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The state of an output. hash: None where its content is not known."""

    status: str | None = None
    hash: str | None = None
    stage: str | None = None
    run: str | None = None
    changed_at: datetime | None = None


def evolve(output: Output, event: Event, at: datetime, /) -> Output:
    """Apply a fact. It applies no rules."""
    if not isinstance(event, OutputChanged):
        return output
    return Output(None, event.hash, event.stage, event.run, at)


class OpenOutput(Stream[Output, Event]):
    """An output open for change; its key is the project and the path's identity (`path_in`)."""

    CATEGORY, MOVES, STATE = "build_output", Moves({}), Output
    evolve = staticmethod(evolve)

    @property
    def path(self) -> str:
        """The identity of its path."""
        return str(self.key[1])

    @property
    def generation(self) -> int | None:
        """Its generation with the new events; None where nothing is recorded."""
        return self.version + len(self.news) or None

    def change(self, hash: str | None, *, stage: str | None = None, run: str | None = None) -> bool:
        """Set the hash of its content; False where the content is the same. None: it is not known."""
        if hash is not None and self.state.hash == hash:
            return False
        self.record(OutputChanged(hash=hash, stage=stage, run=run))
        return True

    def generation_of(self, hash: str) -> int | None:
        """The present generation, if its content is this one; else None (W4-04)."""
        return self.generation if self.state.hash == hash else None
