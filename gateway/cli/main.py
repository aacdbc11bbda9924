"""`pledger`, the command line: the options of all commands, the commands, and how each ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .commands import Commands
from .completion import prepare
from .config import load
from .error_report import refuse
from .errors import MEANING, Code, Misuse, ReaderGone, Terminated, Unwritable
from .output import flush, forget_stdout, is_terminal, write
from .session import AsJson, Session

# Options of the session may stand before or after the command; those with a value, then the flags.
VALUED = ("--dsn", "--schema", "--actor", "--domain", "--view", "--config")
FLAGS = ("--no-color", "--quiet", "-q")

_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANING.items())
EPILOG = f"""\b
Write the options above before or after the command.

\b
Exit codes:
{_CODES}

\b
Results go to stdout, everything else to stderr. Where stdout is not a terminal, each row is a line of
tab-separated values, untruncated and without titles. With --json each row is one JSON object.
"""

app = typer.Typer(
    name="pledger",
    cls=Commands,
    help="The pipeline ledger: who changed what, when, in which order.",
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            write(f"pledger {version('pipeline-ledger')}\n")
        except PackageNotFoundError:
            write("pledger, not installed: run from its sources\n")
        raise typer.Exit


Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        help="The ledger's database: postgresql://… or embedded:PATH. Default: the first of LEDGER_DSN, the "
        "configuration, libpq's PG* variables, and the embedded server.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The ledger's schema. Default: LEDGER_SCHEMA, the configuration, or `ledger`."
    ),
]
Actor = Annotated[
    str | None,
    typer.Option(metavar="WHO", help="Who acts. Default: LEDGER_ACTOR, the configuration, or user@host."),
]
Domains = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Import a module that declares streams, as LEDGER_DOMAINS does."),
]
Views = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Import a module that declares views, as LEDGER_VIEWS does."),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The configuration file. Default: LEDGER_CONFIG, or pledger.toml or [tool.pledger] in "
        "pyproject.toml, in this folder or the nearest one above it.",
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print no colours, as NO_COLOR does.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no advice on stderr.")]
Version = Annotated[
    bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
]


@app.callback()
def options(
    context: typer.Context,
    dsn: Dsn = None,
    schema: Schema = None,
    actor: Actor = None,
    domain: Domains = None,
    view: Views = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
    quiet: Quiet = False,
    version: Version = False,
) -> None:
    color = is_terminal() and not no_color and not os.environ.get("NO_COLOR")
    file, env = load(config), os.environ
    context.obj = Session(
        dsn=dsn or (None if env.get("LEDGER_DSN") else file.dsn),
        named_schema=schema or env.get("LEDGER_SCHEMA") or file.schema,
        actor=actor or (None if env.get("LEDGER_ACTOR") else file.actor),
        domains=(*file.domains, *(domain or ())),
        quiet=quiet,
        color=color,
        json=as_json,
        views=(*file.views, *(view or ())),
        file=None if file.file is None else str(file.file),
    )
    file.find_modules()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (`codes.Code`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    if as_json and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 wherever it is printed
    try:
        with _terminable():
            prepare()
            command: Any = typer.main.get_command(app)
            code = command.main(
                args=session_first(given) or ["--help"], prog_name="pledger", standalone_mode=False
            )
            flush()
            return int(code or 0)
    except ReaderGone:
        forget_stdout()
        return Code.READER_GONE
    except (KeyboardInterrupt, typer.Abort):
        return Code.INTERRUPTED
    except Terminated:
        return Code.TERMINATED
    except Exception as error:
        return _refused(error, as_json)


def session_first(given: Sequence[str]) -> list[str]:
    """The arguments with the session's options moved before the command."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(given)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in VALUED:
            first += [word, _value_of(word, words)]
        elif word in FLAGS or word.startswith(tuple(f"{name}=" for name in VALUED)):
            first.append(word)
        else:
            rest.append(word)
    return first + rest


def _value_of(option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise Misuse(f"option '{option}' requires an argument; see `pledger --help`")
    return value


def _refused(error: Exception, as_json: bool) -> Code:
    try:
        flush()  # results from before the error
    except (ReaderGone, Unwritable):
        forget_stdout()
    return refuse(error, as_json=as_json)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command like Ctrl-C, so that it releases everything."""

    def terminate(_number: int, _frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    from .entry import main as entered

    sys.exit(entered())
