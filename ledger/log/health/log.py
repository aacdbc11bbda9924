"""Checks of the ledger itself: whether it fits this code, and whether its guarantees hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .. import install
from ..admin import schema_number
from .checks import Check, Examined, fail, ok, warn

OLD_APPEND: Final = 1.0
"""Seconds after which an open append is reported: it delays every reader of the log."""
SAMPLE: Final = 1000
"""The heads of the streams of this many last events are compared."""
LATE: Final = 60.0
"""Seconds after which a view is late."""
TRIGGERS: Final = ("append_only",)


def schema(look: Examined) -> Iterator[Check]:
    """Whether there is a ledger of a schema that this code knows."""
    found, newest = schema_number(look.connection, look.schema), install.newest()
    if found is None:
        yield fail("schema", f"there is no ledger in schema {look.schema!r}", "run `pledger init`")
    elif install.is_prerelease(install.applied(look.connection, look.schema)):
        yield fail("schema", install.PRERELEASE, install.PRERELEASE_REMEDY)
    elif found > newest and install.fits(found, install.oldest_code(look.connection, look.schema)):
        says = f"the ledger is at schema {found}, newer than this code at {newest}, which may use it"
        yield warn("schema", says, "install a newer pipeline-ledger here as well")
    elif found > newest:
        yield fail(
            "schema",
            f"the ledger is at schema {found}, this code at {newest}",
            "install a newer pipeline-ledger",
        )
    elif found < newest:
        yield fail("schema", f"the ledger is at schema {found}, this code at {newest}", "run `pledger init`")
    else:
        yield ok(
            "schema", f"the ledger in schema {look.schema!r} is at schema {found}, the same as this code"
        )


def open_appends(look: Examined) -> Iterator[Check]:
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
            "open_appends", f"{who} has an append open {age}: readers wait at position {position}", cure
        )
    if not held:
        yield ok("open_appends", f"no append is open for longer than {OLD_APPEND:.0f} s")


def lock_class(look: Examined) -> Iterator[Check]:
    """Whether another ledger of this database has the same lock class."""
    others = [name for (name,) in look.rows("lock_class_sharers", schema=look.schema)]
    if others:
        yield warn(
            "lock_class", f"the ledger in schema {', '.join(others)} has the same lock class: "
            "its open appends delay our readers",
            "give one of them another identity.lock_class while nobody writes, then run `pledger init`",
        )  # fmt: skip
    else:
        yield ok("lock_class", "no other ledger of this database shares the lock class")


def roles(look: Examined) -> Iterator[Check]:
    """Whether the ledger's roles are there, and what the connected one may do."""
    wanted = [f"{look.schema}_{kind}" for kind in install.ROLES]
    there = {name for name, _ in look.rows("known_roles", wanted)}
    missing = [role for role in wanted if role not in there]
    if missing:
        yield fail(
            "roles", f"missing: {', '.join(missing)}", "run `pledger init` as a role that may create roles"
        )
    else:
        yield ok("roles", f"{', '.join(wanted)} exist")
    yield from _rights(look)


def _rights(look: Examined) -> Iterator[Check]:
    for appends, reads, changes, superuser in look.rows("own_rights", schema=look.schema):
        may = [word for word, yes in (("append", appends), ("read", reads)) if yes]
        says = f"the connected role may {' and '.join(may) or 'neither append nor read'}"
        if superuser:
            yield warn(
                "rights",
                "the connected role is a superuser, which no grant limits",
                "use a login with the roles writer and reader",
            )
        elif changes:
            cure = f"revoke its rights on {look.schema}.events; the writer and reader roles suffice"
            yield warn("rights", f"{says}, and also change the log's tables", cure)
        elif not may:
            yield fail("rights", says, f"GRANT {look.schema}_writer, {look.schema}_reader to it")
        else:
            yield ok("rights", says)


def append_only(look: Examined) -> Iterator[Check]:
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


def heads(look: Examined) -> Iterator[Check]:
    """Whether recently changed streams have heads at the versions of their events."""
    ((looked, behind, ahead, missing, example),) = look.rows("sampled_heads", sample=SAMPLE)
    if ahead:
        cure = "append nothing more, and restore the events from a backup"
        yield fail("heads", f"{ahead} of {looked} heads are ahead of their events, such as {example}", cure)
    elif missing or behind:
        counts = [(missing, "missing"), (behind, "behind their events")]
        wrong = " and ".join(f"{many} {words}" for many, words in counts if many)
        yield warn(
            "heads", f"of {looked} heads {wrong}, such as {example}: "
            "opening these streams folds the rest from their events, and guards read the events",
            "run `pledger verify --repair`; the next append of such a stream also repairs its head",
        )  # fmt: skip
    else:
        yield ok("heads", f"the heads of the {looked} streams that changed last equal their events")


def views(look: Examined) -> Iterator[Check]:
    """Whether the views have reached the end of the log, with all their streams."""
    found = look.rows("views_behind")
    for name, parked, seconds, error in found:
        if error is not None:
            says = f"view {name} is not followed, because it failed: {error}"
            yield warn("views", says, f"fix it, then run `pledger rebuild {name}`")
        elif parked:
            says = f"view {name} leaves out {parked} streams, because an event of each failed"
            yield warn("views", says, f"run `pledger views parked {name}`, then `pledger views retry {name}`")
        elif seconds is not None and seconds > LATE:
            says = f"view {name} lacks events that are {seconds:.0f} s old"
            yield warn("views", says, "keep a `pledger views follow` running")
    if not any(parked or error or (seconds or 0) > LATE for _, parked, seconds, error in found):
        yield ok("views", f"{len(found)} views are up to date")


def reactors(look: Examined) -> Iterator[Check]:
    """Whether every reactor handles all streams."""
    found = look.rows("parked_by_reader")
    for name, many, stream, position, error in found:
        yield warn(
            "reactors", f"reactor {name} leaves out {many} streams, because it failed on each, such as "
            f"{stream} from position {position}: {error}",
            f"run `pledger reactors parked {name}`, then `pledger reactors retry {name} --all`",
        )  # fmt: skip
    if not found:
        yield ok("reactors", "no reactor leaves out a stream")


def last_event(look: Examined) -> Iterator[Check]:
    """Whether the clock ran backwards since the last event."""
    for at, ahead in look.rows("last_recorded_at"):
        if ahead:
            says = f"the last event is of {at.isoformat()}, later than the server's clock"
            yield warn(
                "last_event", says, "set the server's clock by NTP; the order of events is not affected"
            )


def positions(look: Examined) -> Iterator[Check]:
    """Whether the sequence matches the events, and hands out positions one by one."""
    who = install.identify(look.connection, look.schema)
    marked = max((row[1] for row in look.rows("open_appends")), default=0)
    if who.subscribed:
        yield _subscribed()
    elif who.cache != 1:
        yield _cached(look.schema, who.cache)
    elif who.last_position < who.max_position:
        yield _behind(look.schema, who, f"the last event {who.max_position}", who.max_position)
    elif who.last_position < marked:
        yield _behind(look.schema, who, f"an open append, after {marked}", marked)
    else:
        yield ok("positions", f"the last event is at {who.max_position}, the sequence at {who.last_position}")


def _subscribed() -> Check:
    return fail(
        "positions", "the events come by a logical subscription, in the order of commits and not of "
        "positions: readers would skip those that arrive late",
        "use the publisher; or make this database the primary: stop all appends there, wait until all "
        "events have arrived (pg_stat_subscription), DROP SUBSCRIPTION, and run doctor again before any "
        "program connects",
    )  # fmt: skip


def _cached(schema: str, cache: int) -> Check:
    return fail(
        "positions", f"the sequence has CACHE {cache}: sessions hand out old positions late, and readers "
        "skip those events",
        f"as the owner: ALTER SEQUENCE {schema}.positions CACHE 1; then end the sessions that have appended "
        "meanwhile, and restart readers from earlier cursors",
    )  # fmt: skip


def _behind(schema: str, who: install.Identity, what: str, last: int) -> Check:
    return fail(
        "positions", f"the sequence is at {who.last_position}, behind {what}: "
        "new events would get positions that exist, or that readers have passed",
        "stop all appends, then as the owner: "
        f"SELECT setval('{schema}.positions', {last})",
    )  # fmt: skip


def position_lock(look: Examined) -> Iterator[Check]:
    """Whether a session still holds the lock that it takes while it takes a position."""
    left = look.rows("left_locks")
    for pid, application, state in left:
        yield fail(
            "position_lock", f"process {pid} ({application or 'unnamed'}, {state}) did not release the lock "
            "that it took for a position: every append of several events waits for it",
            f"SELECT pg_terminate_backend({pid})",
        )  # fmt: skip
    if not left:
        yield ok("position_lock", "every session has released the lock of a position")


CHECKS = (
    positions,
    position_lock,
    open_appends,
    lock_class,
    roles,
    append_only,
    heads,
    views,
    reactors,
    last_event,
)
