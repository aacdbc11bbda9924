"""
A process that outlives its runner by a moment: it kills the commands that the runner leaves behind.

A runner that is killed cannot end its commands, and they would write outputs while the next run writes them
too. The runner tells this process, on its standard input, which process groups begin (`+PID`) and end
(`-PID`); at the end of the input those that are left are killed. It is run as a script, and imports nothing
of this project.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Read until the runner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
