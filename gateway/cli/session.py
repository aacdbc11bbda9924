"""What every command shares: the place of the ledger, the actor, how results are shown."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .errors import Misuse
from .output import Column, clean, fields, json_line, plain, table

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.pipelines import Pipeline

T = TypeVar("T")
DOMAINS = (
    "ledger.builds", "ledger.jobs", "ledger.machines", "ledger.pipelines.lsm", "ledger.pipelines.psoct",
    "ledger.runs",
)  # fmt: skip
"""Modules that declare the streams that `show` can fold; `--domain` and LEDGER_DOMAINS name further ones."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one object per line.")]


@dataclass(frozen=True, slots=True)
class Session:
    """The options that may stand before or after the command."""

    dsn: str | None
    named_schema: str | None
    actor: str | None
    domains: tuple[str, ...]
    quiet: bool
    color: bool
    json: bool = False
    views: tuple[str, ...] = ()
    file: str | None = None

    @property
    def schema(self) -> str:
        """The ledger's schema: `--schema`, else LEDGER_SCHEMA, else the configuration's, else `ledger`."""
        return self.named_schema or "ledger"

    def say(self, message: str) -> None:
        """Print progress or advice on stderr, unless `--quiet` is given."""
        if not self.quiet:
            print(clean(message), file=sys.stderr)

    def print_rows(
        self,
        rows: Iterable[T],
        columns: Sequence[Column],
        cells: Callable[[T], Sequence[Any]],
        *,
        data: Callable[[T], Any] = plain,
        styles: Mapping[str, str] | None = None,
    ) -> None:
        """Print a list: with `--json` an object a row, its `data`; else a table of its `cells`."""
        if self.json:
            for row in rows:
                json_line(data(row))
        else:
            table(columns, map(cells, rows), color=self.color, styles=styles)

    def print_fields(self, data: Any, shown: Mapping[str, Any] | None = None) -> None:
        """Print one result: with `--json` an object, else a line for each value of `shown` that is not None.

        shown: by default `data`, which is a mapping then.
        """
        if self.json:
            json_line(plain(data))
        else:
            pairs = (data if shown is None else shown).items()
            fields([(name, value) for name, value in pairs if value is not None], color=self.color)

    @contextmanager
    def ledger(self, program: str = "", **limits: Any) -> Iterator[Ledger]:
        """The ledger for one command; the error for an unknown stream suggests similar names.

        program: a name in `ledger.roles.PROGRAMS`; refused at once where its roles are missing. limits:
        max_size and timeout of `ledger.connect`. What is left out because it cannot be read is reported on
        stderr.
        """
        from ledger.errors import StreamNotFound
        from ledger.log.admin import attach
        from ledger.roles import require_roles

        from .stderr import log_to_stderr

        with (
            attach(self.dsn, self.schema, self.actor, **limits) as log,
            log_to_stderr(self, "ledger", "gateway"),
        ):
            if program:
                require_roles(log, program)
            try:
                yield log
            except StreamNotFound as error:
                if found := similar_streams(log, error.stream):
                    error.add_note(f"did you mean {' or '.join(found)}?")
                raise

    def know_domains(self) -> None:
        """Import the modules that declare streams. Raises Misuse for one that does not exist."""
        for name in DOMAINS:
            if find_spec(name):
                importlib.import_module(name)
        import_domains(self.domains)

    def pipeline(self, name: str) -> Pipeline | None:
        """The pipeline of this name; None if no domain declares it. Raises Misuse as `know_domains`."""
        from ledger.pipelines import PIPELINES

        self.know_domains()
        return PIPELINES.get(name)

    def know_views(self) -> None:
        """Register the shipped views, and import modules that declare others, or streams. Raises Misuse."""
        from projections.shipped import load

        self.know_domains()
        load()
        named = os.environ.get("LEDGER_VIEWS", "").split(",")
        for name in filter(None, map(str.strip, (*self.views, *named))):
            imported(name, "view")


def import_domains(names: Iterable[str]) -> list[ModuleType]:
    """Import these modules and those that LEDGER_DOMAINS names. Raises Misuse."""
    more = os.environ.get("LEDGER_DOMAINS", "").split(",")
    return [imported(name, "domain") for name in filter(None, map(str.strip, (*names, *more)))]


def imported(name: str, what: str) -> ModuleType:
    """Import a module of the user's. Raises Misuse if that fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        hint = "`path` in pledger.toml, or PYTHONPATH=., sets where modules are searched"
        raise Misuse(f"the {what} {name!r} cannot be imported: {error}; {hint}") from error
    except Exception as error:  # the user's module may raise anything
        raise Misuse(f"the {what} {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def session_of(context: typer.Context, as_json: bool) -> Session:
    """The session of a command, with the command's own `--json`."""
    session = context.find_root().obj
    assert isinstance(session, Session)
    return replace(session, json=session.json or as_json)


SAMPLE = 1000
"""Maximum number of names compared: a suggestion is worth one query, not a scan of the ledger."""


def similar_streams(log: Ledger, stream: str) -> list[str]:
    """Up to three stream names similar to this one, the most similar first."""
    parts = stream.split("/")
    for kept in range(len(parts) - 1, -1, -1):
        prefix = "".join(f"{part}/" for part in parts[:kept])
        names = [info.stream for info in log.streams(prefix, limit=SAMPLE)]
        if found := get_close_matches(stream, names, n=3, cutoff=0.6):
            return found
    return []
