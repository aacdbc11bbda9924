"""A slot of a worker: a process of its own that runs one operation at a time, and may be ended any time."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any, Final

from ledger import BadInput

from .messages import CUT, Broken, Outcome, Stopped, Task
from .nursery import Nursery
from .process import Process
from .wire import Garbled, Line, decode

STARTS: Final = 3
"""Processes in a row that may die before they are ready; then the worker gives up."""
DYING: Final = 0.5
"""Seconds in which a process that closed its pipe is gone, if it died; and in which a free one ends."""


class Slot:
    """One child process, replaced when it died. Not for two threads.

    registry: MODULE:NAME; where: how the child connects to the ledger (arguments of `ledger.connect`).
    memory_mb: the address space that the child may have, None for no limit.
    """

    def __init__(
        self,
        registry: str,
        where: dict[str, Any],
        *,
        memory_mb: int | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self.registry, self.where, self.memory_mb, self._nursery = registry, where, memory_mb, nursery
        self.task: Task | None = None
        self.ready = False
        self._failed = 0
        self._told: str | None = None
        self._ended_for: str | None = None
        self._deadline: float | None = None
        self._process = self._begun()

    @property
    def pipe(self) -> Line:
        """Has something to say when `answer` is to be asked; may be another one after that."""
        return self._process.pipe

    @property
    def free(self) -> bool:
        """Whether it can be given a task."""
        return self.ready and self.task is None

    def give(self, task: Task) -> None:
        """Let it run a task; where its process died meanwhile, the one that takes its place runs it."""
        if self.pipe.poll():
            self.answer()
        self.task, self._told, self._ended_for = task, None, None
        self._deadline = None if task.timeout_seconds is None else time.monotonic() + task.timeout_seconds
        self._process.give(task)

    def overdue(self) -> bool:
        """Whether its task has run longer than its timeout_seconds: to be killed."""
        return self.task is not None and self._deadline is not None and time.monotonic() >= self._deadline

    def tell_stop(self, reason: str) -> None:
        """Tell its operation to stop: `session.check` and `emit` raise WorkStopped from now on."""
        if self.task is not None and self._told is None:
            self._told = reason
            self._process.tell_stop(self.task, reason)

    def kill(self) -> None:
        """End its process and all that it began, now; `answer` says what became of its task."""
        if self._ended_for is None:
            self._ended_for = "timeout" if self.overdue() else "stop"
        self._process.kill()

    def close(self) -> None:
        """Let it go: a free one ends by itself."""
        self._process.let_go()
        if self.task is not None or self._process.code(DYING) is None:
            self._process.kill()

    def answer(self) -> Outcome | None:
        """What came of its task; None if nothing yet. Never waits for the child.

        Raises BadInput where no child can begin: its registry cannot be imported there.
        """
        try:
            body = self.pipe.take()
            if body is None:
                return None
            outcome, last = decode(body)
            if not self.ready:
                self._is_ready(outcome)
                return None
            return self._answered(outcome, last)
        except Garbled:
            self._process.kill()
            return self._over(None, "the operation wrote to the pipe on which its process answers")
        except (EOFError, OSError):
            return self._died()

    def _answered(self, outcome: Outcome, last: bool) -> Outcome:
        task, said = self.task, (outcome.stream, outcome.token)
        if task is None or said != (task.stream, task.token):
            raise Garbled
        self.task = None
        outcome = self._with_output(outcome)
        if last:
            self._process.kill()
            self._replace()
        return outcome

    def _is_ready(self, said: Outcome) -> None:
        if isinstance(said, Broken):
            raise BadInput(
                f"the processes of operations cannot use {self.registry!r}: {said.error_code}: "
                f"{said.message}\n{said.details.get('traceback', '')}"
            )
        self.ready, self._failed = True, 0

    # Its process

    def _begun(self) -> Process:
        return Process(self.registry, self.where, self.memory_mb, self._nursery)

    def _replace(self) -> None:
        """Another process takes the place of one that ended."""
        self._process.let_go()
        self.ready, self._deadline = False, None
        self._process = self._begun()

    def _died(self) -> Outcome | None:
        """Its process ended, or closed its pipe."""
        code = self._process.code(DYING)
        if code is None:
            alone = self._process.nursery.alive
            code = self._process.kill()
            code = CUT if alone else code
        return self._over(code)

    def _over(self, code: int | None, why: str | None = None) -> Outcome | None:
        """Begin another process; what became of the task."""
        task, self.task = self.task, None
        outcome = None if task is None else self._with_output(self._became(task, code, why))
        self._failed += not self.ready
        if self._failed >= STARTS:
            raise BadInput(
                f"{STARTS} processes of operations in a row ended {_how(code)} before they could use "
                f"{self.registry!r}; they printed: {self._process.output.tail() or 'nothing'}"
            )
        self._replace()
        return outcome

    def _became(self, task: Task, code: int | None, why: str | None) -> Outcome:
        if self._ended_for == "timeout":
            text = f"the operation did not end within {task.timeout_seconds:g} seconds, and was ended"
            details: dict[str, Any] = {"timeout_seconds": task.timeout_seconds}
            return Broken(task.stream, task.token, error_code="JobTimeout", message=text, details=details)
        if self._ended_for == "stop":
            return Stopped(task.stream, task.token, reason=self._told or "it was ended")
        if code == CUT and why is None:
            why = "the operation closed the pipe on which its process answers"
        details = {}
        if why is None and code is not None:
            details = {"signal": -code} if code < 0 else {"exit_code": code}
        text = why or f"the process of the operation ended {_how(code)}"
        return Broken(task.stream, task.token, error_code="ProcessDied", message=text, details=details)

    def _with_output(self, outcome: Outcome) -> Outcome:
        """A failure with the end of what was printed."""
        if isinstance(outcome, Broken) and (tail := self._process.output.tail()):
            return replace(outcome, details={**outcome.details, "output": tail})
        return outcome


def _how(code: int | None) -> str:
    if code is None:
        return "in a way that nobody saw"
    if code >= 0:
        return f"with exit code {code}"
    killed = " (by somebody, or by the system where memory runs out)" if code == -signal.SIGKILL else ""
    return f"by signal {signal.Signals(-code).name}{killed}"
