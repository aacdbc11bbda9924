"""What can go wrong with a ledger, done on purpose, by its owner; and what is left of it, to compare."""

from __future__ import annotations

from typing import Any

import psycopg

from ledger import Append, Body, Ledger
from ledger.log.append import body_of
from ledger.pipelines import LSMStateService
from tests.lamp import LampMade, LampRead, LampSwitchedOn, OpenLamp

Connection = psycopg.Connection[Any]


def as_owner(connection: Connection, *statements: str) -> None:
    """Run statements as the ledger's owner, whom nothing but the trigger stops."""
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]


def tamper(connection: Connection, *statements: str) -> None:
    """The same with the events' trigger and keys out of the way."""
    as_owner(
        connection,
        "ALTER TABLE ledger.events DISABLE TRIGGER append_only",
        "ALTER TABLE ledger.events DROP CONSTRAINT IF EXISTS events_stream_version",
        *statements,
        "ALTER TABLE ledger.events ENABLE TRIGGER append_only",
    )


def heads(connection: Connection) -> list[str]:
    """All heads, each as the text of its whole row."""
    rows = connection.execute("SELECT h::text FROM ledger.heads h ORDER BY stream").fetchall()
    return [row for (row,) in rows]


def commands(connection: Connection) -> list[str]:
    """All rows of command ids, each as text."""
    rows = connection.execute("SELECT c::text FROM ledger.commands c ORDER BY command").fetchall()
    return [row for (row,) in rows]


def use(log: Ledger) -> None:
    """A small ledger: lamps appended to in all ways, a tree of project state, another application's bytes."""
    for name in "abc":
        with log.open(OpenLamp, name, command=f"make {name}") as lamp:
            lamp.make(40, {"deep": [1, {"er": 2.0}]})
            lamp.read([1, 1.0, True, None])
        with log.open(OpenLamp, name) as lamp:
            lamp.switch_on()
    log.append("lamp/b", LampRead(value=3))
    log.append_all(
        [Append("lamp/d", [body_of(LampMade()), body_of(LampSwitchedOn())], status="on"),
         Append("lamp/e", [body_of(LampMade())], status="made", set_token=9)],
        command="both",
    )  # fmt: skip
    service = LSMStateService(log)
    with service.open_channel("brain_7", slice_id=1, channel_id=0) as channel:
        for number in (1, 2):
            channel.get_or_create_strip(number).mark_started()
        channel.enter("mip_stitched")
    log.append("of-another/1", Body("theirs", 1, None, b"\x00\x01"), head=False)
    log.append("plain/1", Body("nobody.knows", 1, '{"status": "odd"}'))
