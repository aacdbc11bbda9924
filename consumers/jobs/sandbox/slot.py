"""A slot of a worker: a child process that runs one operation at a time and may be killed at any time."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any, Final

from ledger import BadInput

from ..messages import CUT, Failed, Outcome, Stopped, Task
from .child_process import ChildProcess
from .fork_server import ForkServer
from .frames import BadFrame, FrameSocket, decode

MAX_STARTS: Final = 3
"""How many child processes in a row may die before they are ready; then the worker gives up."""
EXIT_TIMEOUT: Final = 0.5
"""Seconds for a process that closed its pipe to exit, and for an idle one to end."""


class Slot:
    """One child process, replaced when it dies. For one thread.

    registry: MODULE:NAME; connect: the arguments of `ledger.connect` in the child.
    memory_mb: the address space that the child may have, None for no limit.
    """

    def __init__(
        self,
        registry: str,
        connect: dict[str, Any],
        *,
        memory_mb: int | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.registry, self.connect, self.memory_mb = registry, connect, memory_mb
        self._fork_server = fork_server
        self.task: Task | None = None
        self.ready = False
        self._failed = 0
        self._stop_reason: str | None = None
        self._killed_for: str | None = None
        self._deadline: float | None = None
        self._process = self._start()

    @property
    def pipe(self) -> FrameSocket:
        """Readable when `read_outcome` has something to read; may be another one after that."""
        return self._process.pipe

    @property
    def free(self) -> bool:
        """Whether it can run a task now."""
        return self.ready and self.task is None

    def run(self, task: Task) -> None:
        """Run a task; if its process died meanwhile, the next process runs it."""
        if self.pipe.poll():
            self.read_outcome()
        self.task, self._stop_reason, self._killed_for = task, None, None
        self._deadline = None if task.timeout_seconds is None else time.monotonic() + task.timeout_seconds
        self._process.run(task)

    def overdue(self) -> bool:
        """Whether its task has exceeded its timeout_seconds and is to be killed."""
        return self.task is not None and self._deadline is not None and time.monotonic() >= self._deadline

    def request_stop(self, reason: str) -> None:
        """Tell its operation to stop: its `check` and `emit` raise WorkStopped from now on."""
        if self.task is not None and self._stop_reason is None:
            self._stop_reason = reason
            self._process.request_stop(self.task, reason)

    def kill(self) -> None:
        """Kill its process and all that it started; `read_outcome` returns the outcome of its task."""
        if self._killed_for is None:
            self._killed_for = "timeout" if self.overdue() else "stop"
        self._process.kill()

    def close(self) -> None:
        """End its process."""
        self._process.close()
        if self.task is not None or self._process.exit_code(EXIT_TIMEOUT) is None:
            self._process.kill()

    def read_outcome(self) -> Outcome | None:
        """The outcome of its task; None if there is none yet. Never waits for the child.

        Raises BadInput where no child can start, because its registry cannot be imported.
        """
        try:
            body = self.pipe.read_frame()
            if body is None:
                return None
            outcome, last = decode(body)
            if not self.ready:
                self._started(outcome)
                return None
            return self._finished(outcome, last)
        except BadFrame:
            self._process.kill()
            return self._ended(None, "the operation wrote to the pipe that is for its process's answers")
        except (EOFError, OSError):
            return self._died()

    def _finished(self, outcome: Outcome, last: bool) -> Outcome:
        task, claim = self.task, (outcome.stream, outcome.token)
        if task is None or claim != (task.stream, task.token):
            raise BadFrame
        self.task = None
        outcome = self._with_output(outcome)
        if last:
            self._process.kill()
            self._replace()
        return outcome

    def _started(self, message: Outcome) -> None:
        if isinstance(message, Failed):
            raise BadInput(
                f"the processes of operations cannot use {self.registry!r}: {message.error_code}: "
                f"{message.message}\n{message.details.get('traceback', '')}"
            )
        self.ready, self._failed = True, 0

    # Its process

    def _start(self) -> ChildProcess:
        return ChildProcess(self.registry, self.connect, self.memory_mb, self._fork_server)

    def _replace(self) -> None:
        """Start another process in place of one that ended."""
        self._process.close()
        self.ready, self._deadline = False, None
        self._process = self._start()

    def _died(self) -> Outcome | None:
        """Its process ended, or closed its pipe."""
        code = self._process.exit_code(EXIT_TIMEOUT)
        if code is None:
            alone = self._process.fork_server.alive
            code = self._process.kill()
            code = CUT if alone else code
        return self._ended(code)

    def _ended(self, code: int | None, why: str | None = None) -> Outcome | None:
        """Start another process; the outcome of the task."""
        task, self.task = self.task, None
        outcome = None if task is None else self._with_output(self._outcome_of_death(task, code, why))
        self._failed += not self.ready
        if self._failed >= MAX_STARTS:
            raise BadInput(
                f"{MAX_STARTS} processes of operations in a row ended {_how(code)} before they could use "
                f"{self.registry!r}; they printed: {self._process.output.tail() or 'nothing'}"
            )
        self._replace()
        return outcome

    def _outcome_of_death(self, task: Task, code: int | None, why: str | None) -> Outcome:
        if self._killed_for == "timeout":
            text = f"the operation did not end within {task.timeout_seconds:g} seconds and was killed"
            details: dict[str, Any] = {"timeout_seconds": task.timeout_seconds}
            return Failed(task.stream, task.token, error_code="JobTimeout", message=text, details=details)
        if self._killed_for == "stop":
            return Stopped(task.stream, task.token, reason=self._stop_reason or "it was ended")
        if code == CUT and why is None:
            why = "the operation closed the pipe that is for its process's answers"
        details = {}
        if why is None and code is not None:
            details = {"signal": -code} if code < 0 else {"exit_code": code}
        text = why or f"the process of the operation ended {_how(code)}"
        return Failed(task.stream, task.token, error_code="ProcessDied", message=text, details=details)

    def _with_output(self, outcome: Outcome) -> Outcome:
        """A failure with the end of its output."""
        if isinstance(outcome, Failed) and (tail := self._process.output.tail()):
            return replace(outcome, details={**outcome.details, "output": tail})
        return outcome


def _how(code: int | None) -> str:
    if code is None:
        return "for an unknown reason"
    if code >= 0:
        return f"with exit code {code}"
    killed = " (sent by somebody, or by the system when memory runs out)" if code == -signal.SIGKILL else ""
    return f"by signal {signal.Signals(-code).name}{killed}"
