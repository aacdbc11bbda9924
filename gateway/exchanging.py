"""`pledger import` and `export`: JSON Lines, CSV and XES files, in and out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .codes import Misuse, ReaderGone
from .printing import fields, json_line
from .progress import board
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.exchange import Format, Imported, Part

STDIO: Final = "-"

File = Annotated[str, typer.Argument(metavar="FILE", help="The file, .gz too; `-` for stdin or stdout.")]
Kind = Annotated[
    str | None, typer.Option("--format", metavar="F", help="jsonl, csv or xes; else as FILE is named.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read all of it, record nothing.")]
Category = Annotated[
    str | None, typer.Option(metavar="NAME", help="The category of the streams of XES, or of CSV keys.")
]
LogName = Annotated[
    str | None, typer.Option(metavar="NAME", help="XES: the name of the log; else that of FILE.")
]
States = Annotated[
    list[str] | None,
    typer.Option(metavar="ATTR", help="XES: what says the state; else concept:name. Repeatable."),
]
Zone = Annotated[str | None, typer.Option(metavar="ZONE", help="Of times without an offset: Europe/Zurich.")]
Renumber = Annotated[
    bool, typer.Option("--renumber", help="Append to what streams have, whatever versions FILE says.")
]
Column = Annotated[str | None, typer.Option(metavar="COLUMN", help="CSV: the column that says it.")]
KeyColumns = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="CSV: part of the stream's key. Repeatable.")
]
Topic = Annotated[str | None, typer.Option(metavar="T", help="CSV: the topic; else CATEGORY.recorded.")]
Delimiter = Annotated[str | None, typer.Option(metavar="C", help="CSV: else found out.")]
Encoding = Annotated[str | None, typer.Option(metavar="E", help="CSV: else UTF-8, or by its mark.")]

Prefix = Annotated[str, typer.Option(metavar="PREFIX", help="Only streams whose names start so.")]
OneCategory = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only streams of this category; XES needs it.")
]
Topics = Annotated[list[str] | None, typer.Option(metavar="T", help="Only this topic. Repeatable.")]
After = Annotated[int, typer.Option(metavar="POSITION", min=0, help="Only after this position.")]
Upto = Annotated[int | None, typer.Option(metavar="POSITION", min=0, help="Only up to this position.")]
OneLog = Annotated[str | None, typer.Option(metavar="STREAM", help="XES: the log, where there are several.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("import")(import_)
    app.command()(export)


def import_(
    context: typer.Context,
    file: File,
    format: Kind = None,
    dry_run: DryRun = False,
    category: Category = None,
    log: LogName = None,
    state: States = None,
    time_zone: Zone = None,
    renumber: Renumber = False,
    stream_column: Column = None,
    key_column: KeyColumns = None,
    topic: Topic = None,
    topic_column: Column = None,
    time_column: Column = None,
    state_column: Column = None,
    actor_column: Column = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Record what a file says, once.

    Killed and run again, it goes on where it stopped, and records nothing twice. The original times become
    the claimed times. Start with --dry-run: it reads all of the file, and finds what is wrong with it.

    \b
    Examples:
      pledger import events.jsonl.gz
      pledger import incidents.xes.gz --category incident
      pledger import scans.csv --category scan --key-column id --time-column at

    JSON, one object: file, dry_run, events, recorded, there (recorded by an earlier run), streams (new ones),
    first_position, last_position.
    """
    _import(session_of(context, as_json), file, dry_run, dict(context.params))


def _import(session: Session, file: str, dry_run: bool, given: dict[str, Any]) -> None:
    from ledger.exchange import Source, import_file

    with session.ledger() as ledger, Source.of(file) as source:
        reading = _format(ledger, source.name, given)
        with board(session) as shown:
            work = shown.work(f"import {source.name}")

            def progress(events: int, read: int) -> None:
                work.at(events, _estimate(events, read, source.size))

            done = import_file(ledger, source, reading, dry_run=dry_run, progress=progress)
    _report(session, {"file": file, "dry_run": dry_run, **asdict(done)})
    session.say(_told(done, dry_run))


def _told(done: Imported, dry_run: bool) -> str:
    """What happened, in a sentence."""
    there = f"; {done.there} were there already" if done.there else ""
    would = "would be recorded" if dry_run else "recorded"
    return f"{done.recorded} events {would}, {done.streams} new streams{there}"


def _format(ledger: Ledger, name: str, given: dict[str, Any]) -> Format:
    """How the file shall be read. Raises Misuse for options that do not fit."""
    from ledger.exchange import Dialect, EnvelopeCsv, JsonLines, MappedCsv, Xes, told_moves, zone_named

    kind, zone = _kind(given["format"], name), zone_named(given["time_zone"])
    _check_options(kind, given)
    if kind == "xes":
        if given["category"] is None:
            raise Misuse("say of which category the streams shall be, such as --category incident")
        stem = name.lower().removesuffix(".gz").removesuffix(".xes")
        log = given["log"] or name[: len(stem)]
        return Xes(given["category"], log, given["state"] or ["concept:name"], zone)
    known, here = told_moves(ledger), ledger.identity.ledger
    if kind == "jsonl":
        return JsonLines(known, here, zone, renumber=given["renumber"])
    dialect = Dialect(given["delimiter"], given["encoding"])
    if given["stream_column"] is None and not given["key_column"]:
        return EnvelopeCsv(dialect, known, here, zone, renumber=given["renumber"])
    return MappedCsv(dialect, _mapped(given), zone)


def _mapped(given: dict[str, Any]) -> Any:
    from ledger.exchange import Mapped

    names = (
        "category",
        "stream_column",
        "topic",
        "topic_column",
        "time_column",
        "state_column",
        "actor_column",
    )
    return Mapped(key_columns=given["key_column"] or (), **{name: given[name] for name in names})


_ONLY: Final = {
    "xes": {"category", "log", "state"},
    "csv": {"category", "stream_column", "key_column", "topic", "topic_column", "time_column", "state_column",
            "actor_column", "delimiter", "encoding", "renumber"},
    "jsonl": {"renumber"},
}  # fmt: skip


def _check_options(kind: str, given: dict[str, Any]) -> None:
    """An option that would be passed over is a mistake."""
    for name in set().union(*_ONLY.values()) - _ONLY[kind]:
        if given[name]:
            raise Misuse(f"--{name.replace('_', '-')} is not for {kind}")
    columns = _ONLY["csv"] - {"delimiter", "encoding", "renumber", "stream_column", "key_column"}
    if given["delimiter"] and not _separates(given["delimiter"]):
        raise Misuse(f"--delimiter {given['delimiter']!r} must be one character, such as ';' or ','")
    wrong = [name for name in sorted(columns) if given[name]]
    if kind == "csv" and wrong and not (given["stream_column"] or given["key_column"]):
        needs = "needs --stream-column, or --key-column together with --category"
        raise Misuse(f"--{wrong[0].replace('_', '-')} {needs}")


def _separates(delimiter: str) -> bool:
    return len(delimiter) == 1 and delimiter not in '\r\n"'


def _kind(named: str | None, file: str) -> str:
    from ledger.exchange import format_of

    kind = named or format_of(file)
    if kind not in _ONLY:
        raise Misuse(f"say the format of {file}: --format jsonl, csv or xes" if kind is None else
                     f"there is no format {kind!r}: jsonl, csv or xes")  # fmt: skip
    return kind


def export(
    context: typer.Context,
    file: File,
    format: Kind = None,
    stream: Prefix = "",
    category: OneCategory = None,
    topic: Topics = None,
    after: After = 0,
    upto: Upto = None,
    log: OneLog = None,
    as_json: AsJson = False,
) -> None:
    """Write the log, or a part of it, to a file.

    JSON Lines hold everything, and go into another ledger with `import`. FILE appears when it is complete.

    \b
    Examples:
      pledger export all.jsonl.gz
      pledger export - --format csv --category scan
      pledger export incidents.xes --category incident

    JSON, one object: file, events, position (how far of the log it goes).
    """
    session = session_of(context, as_json)
    kind = _kind(format, file)
    if log is not None and kind != "xes":
        raise Misuse(f"--log is not for {kind}")
    if category is not None and stream:
        raise Misuse("--category and --stream say the same in two ways: give one of them")
    from ledger.exchange import Part

    prefix = stream if category is None else f"{category}/"
    part = Part(prefix, topic or (), after, upto)
    _export(session, file, kind, part, log)


def _export(session: Session, file: str, kind: str, part: Part, log: str | None) -> None:
    from ledger.exchange import export_events

    target = sys.stdout.buffer if file == STDIO else Path(file)
    with session.ledger() as ledger, board(session) as shown, _reader_minded():
        work = shown.work(f"export {file}")

        def progress(events: int, position: int, last: int) -> None:
            work.at(events, _estimate(events, position - part.after, last - part.after))

        done = export_events(ledger, target, kind, part, log=log, progress=progress)
    if file != STDIO:
        _report(session, {"file": file, **asdict(done)})
    session.say(f"{done.events} events written, up to position {done.position}")


@contextmanager
def _reader_minded() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def _report(session: Session, done: dict[str, Any]) -> None:
    if session.json:
        json_line(done)
    else:
        said = {name: value for name, value in done.items() if value not in (None, False)}
        fields([(name, str(value)) for name, value in said.items()], color=session.color)


def _estimate(events: int, done: int, whole: int | None) -> int:
    """How many events there will be, when so much of the whole held so many; 0 where nobody can say."""
    return events * whole // done if whole and done else 0
