"""`pledger import` and `export`: JSON Lines, CSV and XES files, and the user's own tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .errors import Misuse, ReaderGone, Unwritable
from .session import AsJson, Session, session_of
from .stderr import show_progress

if TYPE_CHECKING:
    from datetime import tzinfo

    from ledger import Ledger
    from ledger.exchange import Part
    from ledger.exchange.importer import Imported
    from ledger.exchange.source import Format

STDIO: Final = "-"
KINDS: Final = ("jsonl", "csv", "xes")

File = Annotated[str, typer.Argument(metavar="FILE", help="The file, .gz too; `-` for stdin or stdout.")]
Kind = Annotated[
    str | None, typer.Option("--format", metavar="F", help="jsonl, csv or xes. Default: by the name of FILE.")
]
Prefix = Annotated[str, typer.Option(metavar="PREFIX", help="Only streams whose names have this prefix.")]
OneCategory = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only streams of this category; XES needs it.")
]
Topics = Annotated[list[str] | None, typer.Option(metavar="T", help="Only this topic. Repeatable.")]
After = Annotated[int, typer.Option(metavar="POSITION", min=0, help="Only after this position.")]
Upto = Annotated[int | None, typer.Option(metavar="POSITION", min=0, help="Only up to this position.")]
OneLog = Annotated[
    str | None, typer.Option(metavar="STREAM", help="XES: the stream of the log, if there are several.")
]


def kind_of(named: str | None, file: str) -> str:
    """The format from the option, else from the name of the file. Raises Misuse."""
    from ledger.exchange.export import format_of

    kind = named or format_of(file)
    if kind not in KINDS:
        raise Misuse(f"give the format of {file}: --format jsonl, csv or xes" if kind is None else
                     f"unknown format {kind!r}: give jsonl, csv or xes")  # fmt: skip
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

    JSON Lines contain everything; `import` reads them into another ledger. FILE appears only when it is
    complete.

    \b
    Examples:
      pledger export all.jsonl.gz
      pledger export - --format csv --category scan
      pledger export incidents.xes --category incident

    JSON, one object: file, events, position (the last position that was read).
    """
    session = session_of(context, as_json)
    kind = kind_of(format, file)
    if log is not None and kind != "xes":
        raise Misuse(f"--log is not for {kind}")
    if category is not None and stream:
        raise Misuse("--category and --stream exclude each other")
    from ledger.exchange import Part

    prefix = stream if category is None else f"{category}/"
    part = Part(prefix, topic or (), after, upto)
    _export(session, file, kind, part, log)


def _export(session: Session, file: str, kind: str, part: Part, log: str | None) -> None:
    from ledger.exchange import export_events

    target = sys.stdout.buffer if file == STDIO else Path(file)
    with session.ledger() as ledger, show_progress(session) as shown, _reader_minded(file):
        task = shown.task(f"export {file}")

        def progress(events: int, position: int, last: int) -> None:
            task.update(events, estimate(events, position - part.after, last - part.after))

        done = export_events(ledger, target, kind, part, log=log, progress=progress)
    if file != STDIO:
        report(session, {"file": file, **asdict(done)})
    session.say(f"{done.events} events written, up to position {done.position}")


@contextmanager
def _reader_minded(file: str) -> Iterator[None]:
    from ledger import LedgerError

    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        if isinstance(error, LedgerError):  # a LockTimeout is an OSError too
            raise
        raise Unwritable(f"the output {file} cannot be written: {error.strerror or error}") from error


def report(session: Session, done: dict[str, Any]) -> None:
    """Print what was done: a JSON object, or a line for each part with a result."""
    hidden = (name for name, value in done.items() if value is False or isinstance(value, tuple))
    session.print_fields(done, done | dict.fromkeys(hidden))


def estimate(events: int, done: int, whole: int | None) -> int:
    """The expected number of events, if the part `done` of `whole` has `events`; 0 if unknown."""
    return events * whole // done if whole and done else 0


DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the whole file, record nothing.")]
Category = Annotated[
    str | None, typer.Option(metavar="NAME", help="The category of the streams of XES, or of key columns.")
]
LogName = Annotated[
    str | None, typer.Option(metavar="NAME", help="XES: the name of the log. Default: the name of FILE.")
]
States = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ATTR", help="XES: the attribute with the state. Default: concept:name. Repeatable."
    ),
]
Zone = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="The zone of times without an offset, such as Europe/Zurich."),
]
Renumber = Annotated[
    bool,
    typer.Option(
        "--renumber", help="Ignore the versions in FILE, and append after the last version of each stream."
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="XES: refuse a file that violates the standard."),
]
FileName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The file's name in the ledger. Default: its own name, without .gz."),
]
Column = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Own CSV, JSON Lines: the column that holds it.")
]
KeyColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Own CSV, JSON Lines: part of the stream's key. Repeatable."),
]
IdColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="The columns that identify a row: each row is recorded once. Repeatable."
    ),
]
OneTopic = Annotated[
    str | None, typer.Option(metavar="T", help="Own CSV, JSON Lines: the topic. Default: CATEGORY.recorded.")
]
Delimiter = Annotated[str | None, typer.Option(metavar="C", help="CSV: the delimiter. Default: detected.")]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="E", help="CSV: the encoding. Default: by the byte order mark, or UTF-8."),
]


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
    strict: Strict = False,
    file_name: FileName = None,
    stream_column: Column = None,
    key_column: KeyColumns = None,
    id_column: IdColumns = None,
    topic: OneTopic = None,
    topic_column: Column = None,
    time_column: Column = None,
    state_column: Column = None,
    actor_column: Column = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Record the events of a file, each once.

    If it is killed, run it again: it continues where it stopped, and records nothing twice. If the file has
    grown since, the new part is recorded; a file that changed otherwise is refused. The original times become
    claimed times. Start with --dry-run: it reads the whole file and reports its errors.

    \b
    Examples:
      pledger import events.jsonl.gz
      pledger import incidents.xes.gz --category incident
      pledger import scans.csv --category scan --key-column id --time-column at
      pledger import moves.jsonl --category box --key-column box.id --id-column number

    JSON, one object: file, dry_run, events, recorded, there (recorded by an earlier run), streams (new ones),
    first_position, last_position, faults (how many errors against its format the file has), places (the first
    of them).
    """
    _import(session_of(context, as_json), file, dry_run, dict(context.params))


def _import(session: Session, file: str, dry_run: bool, given: dict[str, Any]) -> None:
    from ledger.exchange import Source, import_file

    with session.ledger() as ledger, Source.of(file) as source:
        reading = _format(ledger, source.name, given)
        with show_progress(session) as shown:
            task = shown.task(f"import {source.name}")

            def progress(events: int, read: int) -> None:
                task.update(events, estimate(events, read, source.size))

            name = given["file_name"]
            done = import_file(ledger, source, reading, dry_run=dry_run, name=name, progress=progress)
    report(session, {"file": file, "dry_run": dry_run, **asdict(done)})
    _tell_faults(session, done)
    session.say(_summary(done, dry_run))


def _tell_faults(session: Session, done: Imported) -> None:
    """Print the faults of the file, which were imported as they are."""
    for place in done.places:
        session.say(place)
    if more := done.faults - len(done.places):
        session.say(f"and {more} more")
    if done.faults:
        many = "1 place is" if done.faults == 1 else f"{done.faults} places are"
        kept = "it was kept as it was" if done.faults == 1 else "they were kept as they were"
        session.say(f"{many} not as XES (IEEE 1849) has it; {kept} found (--strict refuses)")


def _summary(done: Imported, dry_run: bool) -> str:
    """The result, in a sentence."""
    there = f"; {done.there} were recorded already" if done.there else ""
    would = "would be recorded" if dry_run else "recorded"
    return f"{done.recorded} events {would}, {done.streams} new streams{there}"


def _format(ledger: Ledger, name: str, given: dict[str, Any]) -> Format:
    """How to read the file. Raises Misuse for options that do not fit."""
    from ledger.exchange.csv_files import Dialect, EnvelopeCsv
    from ledger.exchange.importer import told_statuses, zone_named
    from ledger.exchange.json_lines import JsonLines
    from ledger.exchange.mapped_files import MappedCsv, MappedJsonLines

    kind, zone = kind_of(given["format"], name), zone_named(given["time_zone"])
    _check_options(kind, given)
    if kind == "xes":
        return _xes(name, given, zone)
    known, here, renumber = told_statuses(ledger), ledger.identity.ledger, given["renumber"]
    if kind == "jsonl":
        mapped_lines = _is_mapped(given) and MappedJsonLines(_mapped(given), zone)
        return mapped_lines or JsonLines(known, here, zone, renumber=renumber)
    dialect = Dialect(given["delimiter"], given["encoding"])
    if _is_mapped(given):
        return MappedCsv(dialect, _mapped(given), zone)
    return EnvelopeCsv(dialect, known, here, zone, renumber=renumber)


def _xes(name: str, given: dict[str, Any], zone: tzinfo | None) -> Format:
    from ledger.exchange import Xes

    if given["category"] is None:
        raise Misuse("give the category of the streams, such as --category incident")
    stem = name.lower().removesuffix(".gz").removesuffix(".xes")
    log = given["log"] or name[: len(stem)]
    return Xes(given["category"], log, given["state"] or ["concept:name"], zone, strict=given["strict"])


def _is_mapped(given: dict[str, Any]) -> bool:
    """Whether the file is a table of the user's own."""
    return bool(given["stream_column"] or given["key_column"])


def _mapped(given: dict[str, Any]) -> Any:
    from ledger.exchange.mapped_files import Mapped

    names = (
        "category",
        "stream_column",
        "topic",
        "topic_column",
        "time_column",
        "state_column",
        "actor_column",
    )
    columns: dict[str, Any] = {
        "key_columns": given["key_column"] or (),
        "id_columns": given["id_column"] or (),
    }
    return Mapped(**columns, **{name: given[name] for name in names})


_MAPPING: Final = {
    "category", "id_column", "topic", "topic_column", "time_column", "state_column", "actor_column",
}  # fmt: skip
_ONLY: Final = {
    "xes": {"category", "log", "state", "strict"},
    "csv": {*_MAPPING, "stream_column", "key_column", "delimiter", "encoding", "renumber"},
    "jsonl": {*_MAPPING, "stream_column", "key_column", "renumber"},
}


def _check_options(kind: str, given: dict[str, Any]) -> None:
    """Refuse an option that would be ignored. Raises Misuse."""
    for name in sorted(set().union(*_ONLY.values()) - _ONLY[kind]):
        if given[name]:
            raise Misuse(f"--{name.replace('_', '-')} is not for {kind}")
    if given["delimiter"] and not _separates(given["delimiter"]):
        raise Misuse(f"--delimiter {given['delimiter']!r} must be one character, such as ';' or ','")
    wrong = [name for name in sorted(_MAPPING) if given[name]]
    if kind != "xes" and wrong and not _is_mapped(given):
        needs = "needs --stream-column, or --key-column together with --category"
        raise Misuse(f"--{wrong[0].replace('_', '-')} {needs}")
    if given["renumber"] and _is_mapped(given):
        raise Misuse("--renumber is only for files with versions; a table of your own has none")


def _separates(delimiter: str) -> bool:
    return len(delimiter) == 1 and delimiter not in '\r\n"'
