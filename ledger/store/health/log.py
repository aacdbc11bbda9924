"""Checks of the ledger itself: does it fit this code, and does it hold what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .. import install
from ..admin import schema_number
from .checks import Check, Look, fail, ok, warn

OLD_APPEND: Final = 1.0
"""Seconds after which an open append is named: it holds every reader of the log back."""
SAMPLE: Final = 1000
"""The heads of the streams of this many last events are compared."""
LATE: Final = 60.0
"""Seconds after which a view is late."""
TRIGGERS: Final = ("append_only",)


def schema(look: Look) -> Iterator[Check]:
    """Whether there is a ledger of a schema that this code knows."""
    found, newest = schema_number(look.connection, look.schema), install.newest()
    if found is None:
        yield fail("schema", f"there is no ledger in schema {look.schema!r}", "run `pledger init`")
    elif found > newest:
        yield fail(
            "schema",
            f"the ledger is at schema {found}, this code at {newest}",
            "install a newer pipeline-ledger",
        )
    elif found < newest:
        yield fail("schema", f"the ledger is at schema {found}, this code at {newest}", "run `pledger init`")
    else:
        yield ok("schema", f"the ledger in schema {look.schema!r} is at schema {found}, as this code")


def positions(look: Look) -> Iterator[Check]:
    """Whether the sequence is where the events are."""
    who = install.identify(look.connection, look.schema)
    if who.last_position < who.max_position:
        yield fail(
            "positions", f"the sequence is at {who.last_position}, behind the last event {who.max_position}: "
            "new events would get positions that are used, or that readers have passed",
            f"as the owner: SELECT setval('{look.schema}.positions', {who.max_position})",
        )  # fmt: skip
    else:
        yield ok("positions", f"the last event is at {who.max_position}, the sequence at {who.last_position}")


def open_appends(look: Look) -> Iterator[Check]:
    """Appends that are open for longer than a second."""
    held = [row for row in look.rows("open_appends") if row[2] is None or row[2] >= OLD_APPEND]
    for pid, position, seconds, application, state, gid in held:
        if gid is not None:
            who, cure = (
                f"prepared transaction {gid!r}",
                f"COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
            )
        else:
            who = f"process {pid} ({application or 'unnamed'}, {state or 'hidden from this role'})"
            cure = f"let it commit, or SELECT pg_terminate_backend({pid})"
        age = "for an unknown time" if seconds is None else f"for {seconds:.1f} s"
        yield warn(
            "open_appends", f"{who} holds an append open {age}: readers wait at position {position}", cure
        )
    if not held:
        yield ok("open_appends", f"no append is open for longer than {OLD_APPEND:.0f} s")


def lock_class(look: Look) -> Iterator[Check]:
    """Whether another ledger of this database has our lock class."""
    others = [name for (name,) in look.rows("lock_class_sharers", schema=look.schema)]
    if others:
        yield warn(
            "lock_class", f"the ledger in schema {', '.join(others)} has the same lock class: "
            "its open appends delay our readers",
            "give one of them another identity.lock_class while nobody writes, then run `pledger init`",
        )  # fmt: skip
    else:
        yield ok("lock_class", "no other ledger of this database shares the lock class")


def roles(look: Look) -> Iterator[Check]:
    """Whether the ledger's roles are there, and what the connected one may do."""
    wanted = [f"{look.schema}_{kind}" for kind in install.ROLES]
    there = {name for name, _ in look.rows("known_roles", wanted)}
    missing = [role for role in wanted if role not in there]
    if missing:
        yield fail(
            "roles", f"missing: {', '.join(missing)}", "run `pledger init` as a role that may create roles"
        )
    else:
        yield ok("roles", f"{', '.join(wanted)} are there")
    yield from _rights(look)


def _rights(look: Look) -> Iterator[Check]:
    for appends, reads, changes, superuser in look.rows("own_rights", schema=look.schema):
        may = [word for word, yes in (("append", appends), ("read", reads)) if yes]
        says = f"the connected role may {' and '.join(may) or 'neither append nor read'}"
        if superuser:
            yield warn(
                "rights", "the connected role is a superuser, whom nothing stops", "work as an everyday role"
            )
        elif changes:
            cure = f"revoke its rights on {look.schema}.events; the writer and reader roles suffice"
            yield warn("rights", f"{says}, and also change the log's tables", cure)
        elif not may:
            yield fail("rights", says, f"GRANT {look.schema}_writer, {look.schema}_reader to it")
        else:
            yield ok("rights", says)


def append_only(look: Look) -> Iterator[Check]:
    """Whether the trigger that keeps the log append-only is there and fires."""
    found = dict(look.rows("guarding_triggers", schema=look.schema))
    wrong = [
        f"{name} is {'disabled' if name in found else 'missing'}" for name in TRIGGERS if not found.get(name)
    ]
    if wrong:
        yield fail(
            "append_only", f"{' and '.join(wrong)}: events could be changed",
            "run `pledger init`, or as the owner ALTER TABLE events ENABLE TRIGGER; then ask who disabled it",
        )  # fmt: skip
    else:
        yield ok("append_only", "the trigger that keeps the log append-only is enabled")


def heads(look: Look) -> Iterator[Check]:
    """Whether the heads of lately changed streams are there, and where the events are."""
    ((looked, behind, ahead, missing, example),) = look.rows("sampled_heads", sample=SAMPLE)
    if ahead:
        cure = "restore the events from a backup; nothing more should be appended before"
        yield fail("heads", f"{ahead} of {looked} heads know more than the events, such as {example}", cure)
    elif missing or behind:
        counts = [(missing, "missing"), (behind, "behind their events")]
        wrong = " and ".join(f"{many} {words}" for many, words in counts if many)
        yield warn(
            "heads", f"of {looked} heads {wrong}, such as {example}: "
            "opening these folds the rest, and guards ask the events",
            "run `pledger verify --repair`; the next append with a head heals one, too",
        )  # fmt: skip
    else:
        yield ok("heads", f"the heads of the {looked} streams that changed last are where the events are")


def views(look: Look) -> Iterator[Check]:
    """Whether the views are where the log is, with all their streams."""
    found = look.rows("views_behind")
    for name, parked, seconds, error in found:
        if error is not None:
            says = f"view {name} is not followed, since it failed: {error}"
            yield warn("views", says, f"mend it, then run `pledger rebuild {name}`")
        elif parked:
            says = f"view {name} leaves out {parked} streams, since an event of each failed"
            yield warn(
                "views", says, f"look at `pledger views parked {name}`, then `pledger views retry {name}`"
            )
        elif seconds is not None and seconds > LATE:
            says = f"view {name} lacks events that are {seconds:.0f} s old"
            yield warn("views", says, "keep a `pledger views follow` running")
    if not any(parked or error or (seconds or 0) > LATE for _, parked, seconds, error in found):
        yield ok("views", f"{len(found)} views are kept, none of them late")


def last_event(look: Look) -> Iterator[Check]:
    """Whether the clock ran backwards since the last event."""
    for at, ahead in look.rows("last_recorded_at"):
        if ahead:
            says = f"the last event is of {at.isoformat()}, which the server's clock has not reached yet"
            yield warn(
                "last_event", says, "let NTP set the server's clock; order is the position, never the time"
            )


CHECKS = (positions, open_appends, lock_class, roles, append_only, heads, views, last_event)
