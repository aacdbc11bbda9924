"""`pledger dlq`: the dead letters of consumers; list, show, redrive and discard them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Misuse, NotThere
from ..output import Column, clean, plain, time, titled, write
from ..session import AsJson, Session, session_of
from .consume import database
from .options import Tables, Yes

if TYPE_CHECKING:
    from consumers.kafka.consumer_group.offsets import Connection
    from consumers.kafka.consumer_group.parking import Letter

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group of consumers.")]
OfGroup = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only of this group.")]
Topic = Annotated[str | None, typer.Option(metavar="TOPIC", help="Only from this topic of Kafka.")]
Key = Annotated[str | None, typer.Option(metavar="STREAM", help="Only of this key: a stream.")]
Error = Annotated[str | None, typer.Option(metavar="CLASS", help="Only with this class of error.")]
Parked = Annotated[
    bool, typer.Option("--all", help="List what waits for another attempt, and what waits behind it, too.")
]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="TOPIC/PARTITION/OFFSET, as the list shows it.")]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Only these: TOPIC/PARTITION/OFFSET. Default: all."),
]


def list_(
    context: typer.Context,
    group: OfGroup = None,
    topic: Topic = None,
    key: Key = None,
    error: Error = None,
    all_: Parked = False,
    limit: Limit = 1_000,
    tables: Tables = "consumers",
    as_json: AsJson = False,
) -> None:
    """List the dead letters of consumers, the oldest first.

    A dead letter is an event that could not be read, or whose handler failed in all its attempts. Later
    events of its key wait behind it.

    JSON, one object per line: id, group, topic, partition, offset, position, event_topic, key, state
    (dead, waiting, behind), attempts, error, message, parked_at, due_at, behind (how many wait behind it).
    """
    session = session_of(context, as_json)
    from consumers.kafka.consumer_group.parking import letters

    states: list[Any] = ["dead", "waiting", "behind"] if all_ else ["dead"]
    with database(session, tables) as connection:
        found = letters(
            connection, tables, group=group, topic=topic, key=None if key is None else key.encode(),
            error=error, states=states, limit=limit,
        )  # fmt: skip
    columns = [*titled("group", "id", keep=True), Column("state"), *titled("attempts", "behind", number=True),
               Column("parked"), Column("error", keep=True), Column("message", rest=True)]  # fmt: skip
    session.print_rows(found, columns, _row, data=_told)
    if not found:
        session.say("no dead letter matches")


def _row(one: Letter) -> list[Any]:
    return [
        one.group,
        one.id,
        one.state,
        one.attempts,
        one.behind,
        time(one.parked_at),
        one.error,
        one.message,
    ]


def _told(one: Letter) -> dict[str, Any]:
    names = ("group", "topic", "partition", "offset", "position", "event_topic")
    more = ("state", "attempts", "error", "message", "parked_at", "due_at", "behind")
    told = {"id": one.id, **{name: getattr(one, name) for name in names}, "key": _text(one.key)}
    shown: dict[str, Any] = plain({**told, **{name: getattr(one, name) for name in more}})
    return shown


def _text(value: bytes | None) -> str | None:
    """Bytes as text; in hexadecimal where they are none."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"


def show(
    context: typer.Context, group: Group, id: Id, tables: Tables = "consumers", as_json: AsJson = False
) -> None:
    """Show a dead letter with its body, its headers and its traceback.

    JSON, one object: the fields of `dlq list`, and value, headers, trace, published_at (when it was copied to
    its dead-letter topic).
    """
    session = session_of(context, as_json)
    with database(session, tables) as connection:
        one = _letter(connection, group, id, tables)
    headers = {name: _text(value) for name, value in one.headers.items()}
    told = _told(one) | plain(
        {"value": _text(one.value), "headers": headers, "published_at": one.published_at}
    )
    if session.json:
        session.print_fields({**told, "trace": one.trace})
        return
    session.print_fields({**told, "headers": None, **headers})
    if one.trace:
        write("\n" + "\n".join(clean(line) for line in one.trace.splitlines()) + "\n")


def _letter(connection: Connection, group: str, id: str, schema: str) -> Letter:
    """The parked event that is named. Raises Misuse, NotThere."""
    from consumers.kafka.consumer_group.client import Place
    from consumers.kafka.consumer_group.parking import letter

    topic, _, rest = id.partition("/")
    partition, _, offset = rest.partition("/")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        raise Misuse(f"{id!r} must be TOPIC/PARTITION/OFFSET, as `pledger dlq list` shows it")
    one = letter(connection, group, Place(topic, int(partition)), int(offset), schema)
    if one is None:
        raise NotThere(f"group {group} has no parked event {id}", group=group, id=id)
    return one


def _each(
    session: Session, group: str, ids: Sequence[str] | None, given: tuple[Any, ...], schema: str,
    act: Callable[..., bool] | None, done: str,
) -> None:  # fmt: skip
    """Apply an action to each, or only list them."""
    from consumers.kafka.consumer_group.parking import letters

    topic, key, error, limit = given
    key = None if key is None else key.encode()
    with database(session, schema) as connection:
        found = [_letter(connection, group, id, schema) for id in ids or ()]
        if not ids:
            found = letters(connection, schema, group=group, topic=topic, key=key, error=error, limit=limit)
        rows = [(one, act is not None and act(connection, one, schema)) for one in found]
    columns = [
        Column("id", keep=True),
        Column(done),
        Column("error", keep=True),
        Column("message", rest=True),
    ]
    session.print_rows(
        rows, columns, lambda row: [row[0].id, "yes" if row[1] else "no", row[0].error, row[0].message],
        data=lambda row: {**_told(row[0]), done: row[1]},
    )  # fmt: skip
    if act is None:
        session.say(f"nothing was changed; --yes has these {len(found)} {done}")


def _acting(done: str, help_text: str) -> Callable[..., None]:
    """The command that has dead letters redriven, or discarded: both have the same options."""

    def command(
        context: typer.Context,
        group: Group,
        ids: Ids = None,
        topic: Topic = None,
        key: Key = None,
        error: Error = None,
        limit: Limit = 1_000,
        tables: Tables = "consumers",
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        from consumers.kafka.consumer_group import parking

        session, act = (
            session_of(context, as_json),
            {"redriven": parking.redrive, "discarded": parking.discard},
        )
        _each(session, group, ids, (topic, key, error, limit), tables, act[done] if yes else None, done)

    command.__doc__ = help_text
    return command


redrive_ = _acting(
    "redriven",
    """Redrive dead letters: a running consumer of the group tries them again, then those behind them.

    Without --yes it only lists them.

    \b
    Examples:
      pledger dlq redrive counts --error builtins.ValueError --yes
      pledger dlq redrive counts ledger.lsm/0/4711 --yes

    JSON, one object per line: the fields of `dlq list`, and redriven (false without --yes).
    """,
)
discard_ = _acting(
    "discarded",
    """Discard dead letters: their effects never happen, and those behind them are handled.

    Without --yes it only lists them. The events stay in their topic and in the ledger.

    \b
    Example:
      pledger dlq discard counts ledger.lsm/0/4711 --yes

    JSON, one object per line: the fields of `dlq list`, and discarded (false without --yes).
    """,
)
