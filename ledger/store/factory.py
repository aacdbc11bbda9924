"""
The factory of recorders for the `eventsourcing` library: PERSISTENCE_MODULE=ledger.store, and LEDGER_DSN.

Each application gets a ledger of its own, in the schema `ledger_NAME` (LEDGER_SCHEMA instead of `ledger`),
made on first use. An application's notification log must hold its own events only, with ids that are
contiguous within a save, and a reader must not be held back by the open transactions of another application:
a ledger's positions, marks and bound are just that. Every tool of a ledger also works on an application's.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING

from eventsourcing.persistence import AggregateRecorder, InfrastructureFactory
from eventsourcing.utils import Environment, EnvType, resolve_topic, strtobool

from ..errors import BadName
from ..log.ledger import Ledger, connect
from .library_errors import library_errors
from .originators import Originators
from .recorders import (
    LedgerAggregateRecorder,
    LedgerApplicationRecorder,
    LedgerProcessRecorder,
    LedgerSnapshotRecorder,
    LedgerTrackingRecorder,
)

if TYPE_CHECKING:
    from typing import TypeVar

    R = TypeVar("R", LedgerApplicationRecorder, LedgerProcessRecorder, LedgerTrackingRecorder)

LONGEST = 40
"""Characters of a ledger's schema (install.py)."""

UNNAMED = "stored"
"""What stands for the name of an application that has none, as in the library's own recorders."""

_PLAIN = re.compile(r"[a-z0-9_]+\Z")
_MARKED = re.compile(r".*_x[0-9a-f]{8}\Z")


class LedgerFactory(InfrastructureFactory[LedgerTrackingRecorder]):
    """Recorders of one application, on the ledger that the environment names.

    LEDGER_DSN, LEDGER_SCHEMA, LEDGER_ACTOR as for `ledger.connect`; each may carry the application's name as
    a prefix, as the library's variables may. ORIGINATOR_ID_TYPE: `uuid` (default) or `text`. CREATE_TABLE:
    `no` where `pledger init` makes the schema. The database is not touched before a recorder is made.
    """

    CREATE_TABLE = "CREATE_TABLE"
    ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        kind = self.env.get(self.ORIGINATOR_ID_TYPE, "uuid").lower()
        if kind not in ("uuid", "text"):
            raise OSError(f"{self.ORIGINATOR_ID_TYPE} is {kind!r}; it must be 'uuid' or 'text'")
        self._originators = Originators(text=kind == "text")
        self._lock = Lock()
        self._ledger: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        """The application's ledger, opened when it is first wanted. Raises the library's errors."""
        with self._lock, library_errors():
            if self._ledger is None:
                self._ledger = connect(
                    self.env.get("LEDGER_DSN"),
                    schema=schema_of(self.env.get("LEDGER_SCHEMA") or "ledger", self.env.name or UNNAMED),
                    actor=self.env.get("LEDGER_ACTOR"),
                    create=self.env_create_table(),
                )
            return self._ledger

    def env_create_table(self) -> bool:
        """Whether recorders may create their tables."""
        return strtobool(self.env.get(self.CREATE_TABLE) or "yes")

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """A recorder of events without notifications; for any other purpose, of snapshots."""
        if purpose == "events":
            return LedgerAggregateRecorder(self.ledger, self._originators)
        return LedgerSnapshotRecorder(self.ledger, self._originators, purpose)

    def application_recorder(self) -> LedgerApplicationRecorder:
        """A recorder of events and their notifications; APPLICATION_RECORDER_TOPIC may name a subclass."""
        return self._made(self._named(self.APPLICATION_RECORDER_TOPIC, LedgerApplicationRecorder))

    def tracking_recorder(
        self, tracking_recorder_class: type[LedgerTrackingRecorder] | None = None
    ) -> LedgerTrackingRecorder:
        """A recorder of tracking: the given class, or that of TRACKING_RECORDER_TOPIC."""
        if tracking_recorder_class is None:
            tracking_recorder_class = self._named(self.TRACKING_RECORDER_TOPIC, LedgerTrackingRecorder)
        return self._made(tracking_recorder_class)

    def process_recorder(self) -> LedgerProcessRecorder:
        """A recorder of events with tracking; PROCESS_RECORDER_TOPIC may name a subclass."""
        return self._made(self._named(self.PROCESS_RECORDER_TOPIC, LedgerProcessRecorder))

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        if self._ledger is not None:
            self._ledger.close()

    def _named(self, variable: str, default: type[R]) -> type[R]:
        topic = self.env.get(variable)
        found = resolve_topic(topic) if topic else default
        if not (isinstance(found, type) and issubclass(found, default)):
            raise OSError(f"{variable} is {topic!r}; it must name a subclass of {default.__qualname__}")
        return found

    def _made(self, kind: type[R]) -> R:
        recorder = kind(self.ledger, self._originators)
        if self.env_create_table():
            with library_errors():
                recorder.create_table()
        return recorder


def schema_of(prefix: str, application: str) -> str:
    """The schema of an application's ledger. Case does not matter, as it does not in the library's tables.

    A name that is no identifier, or too long, is marked with its hash: no two names share a schema.
    """
    room = LONGEST - len(prefix) - 1
    if room < 12:
        raise BadName(
            "schema", prefix, f"must have at most {LONGEST - 13} characters: names of applications follow"
        )
    name = application.lower()
    if _PLAIN.match(name) and not _MARKED.match(name) and len(name) <= room:
        return f"{prefix}_{name}"
    mark = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{prefix}_{re.sub('[^a-z0-9_]', '_', name)[: room - 10]}_x{mark}"
