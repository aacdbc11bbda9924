"""What runs in each process of `in_processes`: it works while its parent lives."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from ledger.errors import BadInput


def main(descriptor: int) -> None:
    """Take work and pieces from the pipe, and answer on it, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    _end_with(os.getppid())
    pipe: Connection[Any, Any] = Connection(descriptor)
    try:
        _work(pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone: nobody is left to hear anything


def _work(pipe: Connection[Any, Any]) -> None:
    try:
        modules, work = pipe.recv()
        _know(modules)
        work.open()
        while True:
            pipe.send(("done", work(pipe.recv(), lambda count: pipe.send(("told", count)))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(("failed", (type(error).__name__, str(error), traceback.format_exc())))
        pipe.recv()  # until the parent ends this


def _know(modules: list[str]) -> None:
    """Import what declares streams. Raises BadInput for what only the parent can import."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever somebody's module does
            raise BadInput(
                f"another process cannot import {name}, which declares streams ({type(error).__name__}: "
                f"{error}): use one process, or make it a module that can be imported"
            ) from error


def _end_with(parent: int) -> None:
    """End when the parent does, also while a statement runs; the pipe tells it only between statements."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os._exit(1)
