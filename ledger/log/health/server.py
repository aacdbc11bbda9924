"""Checks of the server: whether it is suitable for a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from .checks import Check, Examined, fail, ok, warn

OLDEST, NEWEST = 15, 18
OFF_BY: Final = 1.0
"""Seconds between two clocks from which the check warns."""


class Settings(NamedTuple):
    """The server's settings: the columns of `server_settings`."""

    version: str
    version_number: int
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    max_prepared: int
    time_zone: str
    clock: datetime
    standby: bool
    read_only: str
    user: str
    database: str


def server(look: Examined) -> Iterator[Check]:
    """Version, encoding, durability, standby, prepared transactions, time zone, clock."""
    before = datetime.now(UTC)
    (row,) = look.rows("server_settings")
    after = datetime.now(UTC)
    found = Settings(*row)
    yield _version(found)
    yield _encoding(found.encoding)
    yield _writable(found.standby, found.read_only)
    yield _durable(found.fsync, found.full_page_writes)
    yield _commit(found.synchronous_commit)
    yield from _prepared(look, found.max_prepared)
    yield ok(
        "time_zone",
        f"the server shows times in {found.time_zone}; the ledger keeps them in UTC",
    )
    yield _clock((found.clock - before).total_seconds(), (after - before).total_seconds())


def _version(found: Settings) -> Check:
    major = found.version_number // 10000
    says = f"PostgreSQL {found.version}, reached as {found.user} in database {found.database}"
    if major < OLDEST:
        return fail("server", f"{says}: too old", f"use PostgreSQL {OLDEST} to {NEWEST}")
    if major > NEWEST:
        return warn("server", f"{says}: newer than what was tested", f"use PostgreSQL {OLDEST} to {NEWEST}")
    return ok("server", says)


def _encoding(encoding: str) -> Check:
    if encoding == "UTF8":
        return ok("encoding", "the database is in UTF8")
    return fail(
        "encoding", f"the database is in {encoding}, which cannot store every text",
        "create a database with ENCODING 'UTF8' and move the ledger to it",
    )  # fmt: skip


def _writable(standby: bool, read_only: str) -> Check:
    if standby:
        return fail(
            "primary", "this server is a standby, which does not show its primary's open appends",
            "connect to the primary",
        )  # fmt: skip
    if read_only == "on":
        return fail(
            "primary", "transactions are read-only by default, so appends are refused",
            "set default_transaction_read_only to off for this database and role",
        )  # fmt: skip
    return ok("primary", "this server is the primary, and takes writes")


def _durable(fsync: str, pages: str) -> Check:
    off = [name for name, value in (("fsync", fsync), ("full_page_writes", pages)) if value != "on"]
    if off:
        return fail(
            "durability", f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: "
            "a crash of the computer can lose or damage what was recorded",
            f"set {' and '.join(f'{name} = on' for name in off)} in the server's settings",
        )  # fmt: skip
    return ok("durability", "fsync and full_page_writes are on: what was recorded survives a crash")


def _commit(commit: str) -> Check:
    if commit in ("on", "remote_apply"):
        return ok("synchronous_commit", f"it is {commit}")
    return ok("synchronous_commit", f"it is {commit} for sessions; an append turns it on for itself")


def _prepared(look: Examined, most: int) -> Iterator[Check]:
    there = look.rows("prepared_transactions")
    if there:
        gid, seconds = there[0]
        yield warn(
            "prepared_transactions", f"{len(there)} prepared transaction(s) are open, the oldest, {gid!r}, "
            f"for {seconds:.0f} s; one that contains an append would delay every reader",
            f"COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
        )  # fmt: skip
    elif most:
        yield ok(
            "prepared_transactions",
            f"none is open; the server allows {most}: use none that contains an append",
        )
    else:
        yield ok("prepared_transactions", "the server allows none, as recommended")


def _clock(ahead: float, asking: float) -> Check:
    """`ahead`: the server's time minus ours when we began to ask; `asking`: seconds until it had answered."""
    off = 0.0 if 0 <= ahead <= asking else ahead if ahead < 0 else ahead - asking
    if abs(off) < OFF_BY:
        return ok("clock", f"the server's clock and ours agree within {max(abs(off), asking):.3f} s")
    way = "ahead of" if off > 0 else "behind"
    return warn(
        "clock", f"the server's clock is {abs(off):.1f} s {way} ours; recorded times are the server's",
        "set both clocks by NTP",
    )  # fmt: skip


def connections(look: Examined) -> Iterator[Check]:
    """How many connections are left for others."""
    ((free, most),) = look.rows("free_connections")
    says = f"{free} of {most} connections are free"
    if free < max(5, most // 20):
        yield warn("connections", says, "raise max_connections, or give clients smaller pools")
    else:
        yield ok("connections", says)


CHECKS = (server, connections)
