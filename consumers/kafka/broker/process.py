"""A node's process. It ends with the process that started it, also if that one is killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from os import killpg
from pathlib import Path

# The shell becomes the node. Beside it a reader of a pipe waits, whose other end we hold: when we are gone,
# it kills the node. The reader is in the node's process group, so the number cannot be given away by then.
WATCHED = 'exec 3<&0; (read _ <&3; kill -9 $$) & exec "$@" 3<&- </dev/null'


class NodeProcess:
    """The process of one node. A fork of this process keeps it alive, too."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        """output: the file that gets what the node prints."""
        self.is_frozen = False
        with output.open("ab") as out:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", WATCHED, "sh", *command],
                stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a frozen process has not."""
        return self._child.poll() is None

    def kill(self) -> None:
        """End it as a power failure does."""
        self._child.kill()
        self.wait(60)

    def ask_to_end(self) -> None:
        """Send SIGTERM: a controlled shutdown."""
        self.thaw()
        self._child.terminate()

    def freeze(self) -> None:
        """Stop it where it stands: its connections stay open, and nobody answers."""
        self._child.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self._child.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def wait(self, timeout: float) -> None:
        """Wait for the end, and end the reader beside it. Raises subprocess.TimeoutExpired."""
        self._child.wait(timeout)
        with suppress(ProcessLookupError):
            killpg(self._child.pid, signal.SIGKILL)
        if self._child.stdin:
            self._child.stdin.close()
