"""What a long-running part of the package logs, said on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from .session import Session


class _Aloud(logging.Handler):
    """Says on stderr what is logged."""

    def __init__(self, session: Session) -> None:
        super().__init__(logging.WARNING)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        self._session.say(record.getMessage())


@contextmanager
def aloud(session: Session, *loggers: str) -> Iterator[None]:
    """Say the warnings of these loggers while the block runs."""
    handler, named = _Aloud(session), [logging.getLogger(name) for name in loggers]
    for logger in named:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in named:
            logger.removeHandler(handler)
