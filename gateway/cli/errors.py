"""The exit codes of `pledger`: permanent, because scripts rely on them."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """How a command ended."""

    FINE = 0
    REFUSED = 1
    MISUSE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    CONFLICT = 5
    UNSUCCESSFUL = 6
    TIMED_OUT = 7
    DEFECT = 70
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


MEANING: dict[Code, str] = {
    Code.FINE: "done",
    Code.REFUSED: "the ledger refused the request, or a check found something wrong",
    Code.MISUSE: "wrong use: bad arguments or bad names",
    Code.NOT_FOUND: "nothing is recorded under this name",
    Code.UNREACHABLE: "the server or its ledger cannot be reached or used",
    Code.CONFLICT: "another writer was first, or has the item open",
    Code.UNSUCCESSFUL: "the job or build did not succeed (`jobs wait|result`, `--wait`, `builds run`)",
    Code.TIMED_OUT: "the job did not finish before the timeout (`jobs wait`)",
    Code.DEFECT: "a defect of pledger itself (LEDGER_DEBUG=1 shows where)",
    Code.INTERRUPTED: "interrupted (Ctrl-C)",
    Code.READER_GONE: "the reader of the output closed it",
    Code.TERMINATED: "ended by SIGTERM",
}


class Misuse(Exception):
    """Wrong use that only the command itself can detect; shown like the parser's errors."""

    exit_code = Code.MISUSE

    def format_message(self) -> str:
        """The sentence to show."""
        return str(self)


class NotThere(Exception):
    """The requested part is not in the ledger, though the stream or project may be; `parts` names it."""

    def __init__(self, message: str, **parts: object) -> None:
        super().__init__(message)
        self.parts = parts


class ReaderGone(Exception):
    """The reader of our output has gone: `pledger log | head -1`. Not an OSError, which typer would catch."""


class Unwritable(Exception):
    """The output cannot be written: the disk is full, or stdout is closed. Not an OSError, as above."""


class Terminated(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt it passes all error handlers."""
