"""Every error as one sentence on stderr (with `--json` one object) and one exit code; never a traceback."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, NamedTuple

from .errors import Code, Misuse, NotThere, Unwritable
from .output import clean, plain


class Refusal(NamedTuple):
    """How a command ended, in the parts that are shown."""

    code: Code
    name: str
    message: str
    parts: dict[str, Any]


def refuse(error: Exception, *, as_json: bool) -> Code:
    """Print on stderr what went wrong, and return the exit code."""
    if os.environ.get("LEDGER_DEBUG"):
        traceback.print_exception(error)
    code, name, message, parts = understood(error)
    if as_json:
        # ASCII: a refused name may contain what cannot be printed
        said = json.dumps({"error": name, "message": message, "parts": parts, "exit": code})
    else:
        said = f"pledger: {clean(message)}"
    print(said, file=sys.stderr)
    return code


def understood(error: Exception) -> Refusal:
    """Exit code, class name, sentence and parts of an error."""
    name = type(error).__name__
    if isinstance(error, NotThere):
        return Refusal(Code.NOT_FOUND, name, _sentence(error), plain(error.parts))
    if isinstance(error, Misuse) or hasattr(error, "format_message"):
        return Refusal(Code.MISUSE, name, _misuse(error), {})
    from ledger.errors import LedgerError  # late: it costs more time than the parser

    if isinstance(error, LedgerError):  # before OSError: a LockTimeout is one too
        parts = {part: value for part, value in vars(error).items() if not part.startswith("_")}
        return Refusal(code_of(error), name, _sentence(error), plain(parts))
    if isinstance(error, Unwritable):
        return Refusal(Code.REFUSED, name, _sentence(error), {})
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return Refusal(Code.REFUSED, name, f"{error.filename}: {what}" if error.filename else what, {})
    hint = "this is a defect of pledger: report it with the traceback, which LEDGER_DEBUG=1 shows"
    return Refusal(Code.DEFECT, name, f"{name}: {_sentence(error)}; {hint}", {})


def code_of(error: Exception) -> Code:
    """The exit code of one of the ledger's errors."""
    from ledger import errors as e

    match error:
        case e.StreamConflict() | e.GuardFailed() | e.CommandReused() | e.LockTimeout() | e.BeingBuilt():
            return Code.CONFLICT
        case e.DuplicateJob() | e.GroupRuns() | e.TokenExists() | e.StageAlreadyRunningError():
            return Code.CONFLICT
        case e.JobUnsuccessful():
            return Code.UNSUCCESSFUL
        case e.BadInput():
            return Code.MISUSE
        case e.StreamNotFound() | e.TokenNotFound() | e.RecordNotFound():
            return Code.NOT_FOUND
        case e.ServerUnavailable() | e.KafkaUnavailable() | e.SchemaMismatch():
            return Code.UNREACHABLE
        case _:
            return Code.REFUSED


def _sentence(error: Exception) -> str:
    """The message of the error in one line, with the notes that were added to it."""
    said = [str(error), *getattr(error, "__notes__", ())]
    return "; ".join(" ".join(part.split()) for part in said if part)


def _misuse(error: Any) -> str:
    """The parser's message, and where its help is; typer has moved the classes, but not the methods."""
    said = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return said if context is None else f"{said.rstrip('.')}; see `{context.command_path} --help`"
