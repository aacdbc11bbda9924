"""One command of a stage: a shell in a process group of its own, whose end takes all of the group with it."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Final, NamedTuple

from .presence import Presence

TAIL: Final = 2000
"""Characters of the standard error that the reason of a failure keeps."""
_GATE: Final = 'read -r go || exit 125; exec /bin/sh -c "$1" </dev/null'
"""Waits for a line before it runs the command: by then the guard knows of it, and would kill it."""
_CHUNK: Final = 2**16
_PAUSE: Final = 0.1
"""Seconds between two looks at whether the command must stop, or has left its pipes to others."""


class Ended(NamedTuple):
    """How a command ended. code: its exit code, or minus the signal. stopped: it was told to."""

    code: int
    tail: str
    stopped: bool = False

    @property
    def reason(self) -> str:
        """Why it failed, with the end of what it wrote to its standard error."""
        if self.stopped:
            return "interrupted"
        how = (
            f"the command was killed by {signal.Signals(-self.code).name}"
            if self.code < 0
            else f"the command ended with exit code {self.code}"
        )
        return f"{how}: {self.tail}" if self.tail else how


class Stop:
    """Tells commands to stop: `ask` gracefully, `kill` at once; or the one above does.

    grace: seconds between the two.
    """

    def __init__(self, grace: float = 5.0, above: Stop | None = None) -> None:
        self._asked, self._killed, self._above = threading.Event(), threading.Event(), above
        self.grace: float = grace if above is None else above.grace

    def ask(self) -> None:
        """Ask the commands to end by SIGTERM, and kill them after the grace."""
        self._asked.set()

    def kill(self) -> None:
        """Kill the commands."""
        self._killed.set()

    @property
    def asked(self) -> bool:
        """Whether the commands are to end."""
        return self._asked.is_set() or self.killed or (self._above is not None and self._above.asked)

    @property
    def killed(self) -> bool:
        """Whether the commands are to be killed."""
        return self._killed.is_set() or (self._above is not None and self._above.killed)

    def wait(self, seconds: float) -> bool:
        """Wait until it is asked, or for so many seconds; whether it is."""
        return (self._asked if self._above is None else self._above._asked).wait(seconds) or self.asked


class Command:
    """A running command; `run` returns when it and its group have ended."""

    def __init__(
        self, text: str, folder: Path, presence: Presence, stop: Stop, output: Callable[[str, bool], object]
    ) -> None:
        self.presence, self.stop, self._output = presence, stop, output
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", text], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._tail = ""
        self._told: float | None = None

    def run(self) -> Ended:
        """Pass its output on until it has ended. output: gets text, and whether it was standard error."""
        with self.presence.guarding(self._process.pid), self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            with suppress(BrokenPipeError), process.stdin as gate:  # it was killed before it began
                gate.write(b"go\n")
            self._read_all(process.stdout, process.stderr)
            pause = 0.0005
            while not self._exited():
                self._stop_if_asked()
                sleep(pause)
                pause = min(2 * pause, _PAUSE)
            self._signal(signal.SIGKILL)  # what it left behind would go on writing
            return Ended(process.wait(), self._tail.strip(), self._told is not None)

    def _read_all(self, out: IO[bytes], err: IO[bytes]) -> None:
        decoders = {pipe: codecs.getincrementaldecoder("utf-8")("replace") for pipe in (out, err)}
        with selectors.DefaultSelector() as waiting:
            for pipe in (out, err):
                os.set_blocking(pipe.fileno(), False)
                waiting.register(pipe, selectors.EVENT_READ)
            while waiting.get_map():
                ready = [key.fileobj for key, _ in waiting.select(_PAUSE)]
                for pipe in (out, err):
                    if pipe in ready and not self._read(pipe, decoders[pipe], error=pipe is err):
                        waiting.unregister(pipe)
                self._stop_if_asked()
                if not ready and self._exited():
                    return  # a process that it left behind still has the pipes

    def _read(self, pipe: IO[bytes], decoder: codecs.IncrementalDecoder, *, error: bool) -> bool:
        """Pass on what is there; False at the end."""
        data = os.read(pipe.fileno(), _CHUNK)
        text = decoder.decode(data, final=not data)
        if text:
            if error:
                self._tail = (self._tail + text)[-TAIL:]
            self._output(text, error)
        return bool(data)

    def _exited(self) -> bool:
        """Whether the shell has ended; it stays a zombie, so that the number of its group stays its own."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _stop_if_asked(self) -> None:
        if not self.stop.asked:
            return
        if self._told is None:
            self._told = monotonic()
            self._signal(signal.SIGTERM)
        if self.stop.killed or monotonic() > self._told + self.stop.grace:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
