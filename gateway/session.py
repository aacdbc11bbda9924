"""What every command shares: where the ledger lies, who acts, how results are shown."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from .codes import Misuse
from .plain import clean

if TYPE_CHECKING:
    from ledger import Ledger

DOMAINS = ("ledger.jobs", "ledger.machines", "ledger.project_state")
"""Modules that declare the streams which `show` can fold; `--domain` and LEDGER_DOMAINS name further ones."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs: one object, or one a line.")]


@dataclass(frozen=True, slots=True)
class Session:
    """The options before the command, or after it."""

    dsn: str | None
    named_schema: str | None
    actor: str | None
    domains: tuple[str, ...]
    quiet: bool
    color: bool
    json: bool = False
    views: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The ledger's schema: `--schema`, else LEDGER_SCHEMA, else `ledger`."""
        return self.named_schema or os.environ.get("LEDGER_SCHEMA") or "ledger"

    def say(self, message: str) -> None:
        """Progress and advice, on stderr, unless it shall be quiet."""
        if not self.quiet:
            print(clean(message), file=sys.stderr)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger for one command; an unknown stream is answered with names that are near."""
        from ledger.errors import StreamNotFound
        from ledger.store.admin import attach

        from .near import near

        with attach(self.dsn, self.schema, self.actor) as log:
            try:
                yield log
            except StreamNotFound as error:
                if found := near(log, error.stream):
                    error.add_note(f"did you mean {' or '.join(found)}?")
                raise

    def know_domains(self) -> None:
        """Import the modules that declare streams. Raises Misuse for one that is not there."""
        for name in DOMAINS:
            if find_spec(name):
                importlib.import_module(name)
        named = os.environ.get("LEDGER_DOMAINS", "").split(",")
        for name in filter(None, map(str.strip, (*self.domains, *named))):
            imported(name, "domain")

    def know_views(self) -> None:
        """Know the shipped views, and import the modules that declare others, or streams. Raises Misuse."""
        from projections.shipped import load

        self.know_domains()
        load()
        named = os.environ.get("LEDGER_VIEWS", "").split(",")
        for name in filter(None, map(str.strip, (*self.views, *named))):
            imported(name, "view")


def imported(name: str, what: str) -> ModuleType:
    """A module of the user's. Raises Misuse where it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        hint = "with PYTHONPATH=. what is in this folder is found"
        raise Misuse(f"the {what} {name!r} cannot be imported: {error}; {hint}") from error
    except Exception as error:  # whatever somebody else's module does
        raise Misuse(f"the {what} {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def session_of(context: typer.Context, as_json: bool) -> Session:
    """The session of a command, with its own `--json`."""
    session = context.find_root().obj
    assert isinstance(session, Session)
    return replace(session, json=session.json or as_json)
