"""A run in a process of its own, to be killed: `python -m tests.builds.runner_process DSN FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import ledger
from consumers.builds.run import run_build


def main() -> None:
    """Run the build of a folder; print how it ended."""
    with ledger.connect(sys.argv[1], actor="runner") as log:
        print(run_build(log, Path(sys.argv[2])).status)


if __name__ == "__main__":
    main()
