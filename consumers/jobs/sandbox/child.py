"""
A child process: runs operations, one after the other. The fork server starts it.

Its first message names its registry and its ledger; then it gets tasks and answers each with an outcome. It
shares nothing with its worker but three pipes (tasks and outcomes, stops, output), so no operation can keep
the worker from renewing its leases.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

import ledger as _ledger
from ledger import Ledger
from ledger.domain.claimant import process_claims_for
from ledger.errors import UnknownOperation, WorkStopped

from ..context import OperationContext
from ..dispatch import outcome_of
from ..messages import CUT, Begin, Outcome, RetryLater, Stopped, Task, UnknownHere
from ..operation import Registry, RetryLaterError, checked, registry_at
from .cleanup import ProcessState
from .errors import clean, failure_of
from .frames import answer, encode, frame, read_frame, unpack, write_all
from .limits import limit_memory

ORPHAN_TIMEOUT: Final = 2.0
"""Seconds for an idle child to end by itself once its worker is gone."""
MAX_DELAY: Final = 1e9
"""A delay must be less than this, in seconds; RetryLaterError with a longer one is a failure."""


class Child:
    """Runs tasks. task_fd: the pipe; key: of its frames."""

    def __init__(self, task_fd: int, key: bytes, registry: Registry, connect: dict[str, Any]) -> None:
        self.fd, self.key, self.registry, self.connect_arguments = task_fd, key, registry, connect
        self.pid, self._known = os.getpid(), _identity(task_fd)
        self.session: OperationContext | None = None
        self.process_state = ProcessState()
        self._ledger: Ledger | None = None
        self._stop_message: tuple[str, int, str] = ("", 0, "")

    def connect(self) -> Ledger:
        """The ledger, opened when an operation first wants it."""
        if self._ledger is None:
            self._ledger = _ledger.connect(**self.connect_arguments, create=False, max_size=2)
        return self._ledger

    def serve(self) -> None:
        """Run tasks until the worker is gone, or this process is not fit for another one."""
        last = False
        while not last:
            try:
                task = unpack(read_frame(self.fd))
            except (EOFError, OSError):
                return
            text, fit = self.run(task)
            last = not (self.process_state.restore() and fit)
            self.send(text, last=last)

    def run(self, task: Task) -> tuple[bytes, bool]:
        """Run one task: its outcome, and whether the process is fit for another one."""
        try:
            operation = self.registry.get(task.operation)
        except UnknownOperation as error:
            return encode(UnknownHere(task.stream, task.token, reason=clean(str(error)))), True
        session = self.session = OperationContext(task, self.connect)
        process_claims_for(session.claimant)
        self._pass_on()
        fit = True
        try:
            fit = not getattr(operation, "ends_process", False)
            payload = self.registry.payload_of(task.operation, task.payload, task.job)
            result = operation.execute(session, payload, emit=session.emit)
            text = encode(outcome_of(session, checked(task.operation, result)))
        except BaseException as error:
            fit = fit and not isinstance(error, MemoryError)
            text = encode(_raised(error, task))
        if os.getpid() != self.pid:  # the operation forked, and both processes returned
            os._exit(0)
        session.stop("its operation is over")  # threads that it left behind can no longer emit
        self.session = None
        process_claims_for(None)
        _flush()
        return text, fit

    def send(self, text: bytes, *, last: bool) -> None:
        """Send an answer; if the operation replaced the pipe, exit: the worker sees that."""
        try:
            if _identity(self.fd) != self._known:
                os._exit(CUT)
            write_all(self.fd, frame(self.key, answer(text, last=last)))
        except OSError:
            os._exit(CUT)

    def listen(self, stop_fd: int) -> None:
        """Pass on stops while a task runs; kill everything once the worker is gone."""
        with suppress(EOFError, OSError):
            while True:
                self._stop_message = json.loads(read_frame(stop_fd))
                self._pass_on()
        if self.session is None:
            time.sleep(ORPHAN_TIMEOUT)
        os.killpg(0, signal.SIGKILL)

    def _pass_on(self) -> None:
        """A stop may come before its task, or after it. Called once either of them is known."""
        session, (stream, token, reason) = self.session, self._stop_message
        if session is not None and (session.task.stream, session.task.token) == (stream, token):
            session.stop(reason)


def _raised(error: BaseException, task: Task) -> Outcome:
    """The outcome of a task that raised."""
    match error:
        case WorkStopped():
            return Stopped(task.stream, task.token, reason=clean(error.reason))
        case RetryLaterError() if _is_delay(error.delay_seconds):
            return RetryLater(
                task.stream, task.token, (), clean(str(error.reason)), float(error.delay_seconds)
            )
        case _:
            return failure_of(error, task.stream, task.token)


def _is_delay(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds < MAX_DELAY


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()


def _set_up(begin: Begin) -> None:
    """Take over folder, environment and path of the worker, and set the limits."""
    # New objects, not reconfigured ones: if the worker's were files, those would still count as seekable.
    said: dict[str, Any] = {"mode": "w", "buffering": 1, "errors": "backslashreplace", "closefd": False}
    sys.stdout, sys.stderr = os.fdopen(1, **said), os.fdopen(2, **said)
    os.environ.clear()
    os.environ.update(begin.environment)
    os.chdir(begin.folder)
    sys.path[:] = begin.paths
    limit_memory(begin.memory_mb)
    faulthandler.enable()


def main(task_fd: int | str, stop_fd: int | str, key: bytes | str) -> None:
    """Start, and run tasks until the worker is gone."""
    fd, stop = int(task_fd), int(stop_fd)
    sign = key if isinstance(key, bytes) else bytes.fromhex(key)
    begin: Begin = pickle.loads(read_frame(fd))
    try:
        _set_up(begin)
        child = Child(fd, sign, registry_at(begin.registry), begin.connect)
    except BaseException as error:
        write_all(fd, frame(sign, answer(encode(failure_of(error, "", 0)), last=True)))
        return
    os.set_inheritable(fd, False)
    os.set_inheritable(stop, False)
    threading.Thread(target=child.listen, args=[stop], name="stops of the worker", daemon=True).start()
    child.send(encode(Stopped("", 0)), last=False)
    child.serve()
