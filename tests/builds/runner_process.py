"""Runs in processes of their own, to be killed: `python -m tests.builds.runner_process DSN FOLDER`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import ledger
from consumers.builds.run import run_build
from ledger import Append, Appended, Ledger


def a_runner(dsn: str, root: str, *, in_pieces: bool) -> None:
    """A run, in a process group of its own. in_pieces: each part of an append by itself, as the original."""
    os.setsid()
    with ledger.connect(dsn, actor="runner") as log:
        if in_pieces:
            log.append_all = _in_pieces(log)  # type: ignore[method-assign, assignment]
        run_build(log, Path(root), jobs=2, keep_going=True)


def _in_pieces(log: Ledger) -> Any:
    whole = log.append_all

    def append_all(appends: list[Append], *, command: str | None = None, **meta: Any) -> Appended:
        for append in appends:
            done = whole([append], **meta)
            time.sleep(0.02)
        return done

    return append_all


def main() -> None:
    """Run the build of a folder; print how it ended."""
    with ledger.connect(sys.argv[1], actor="runner") as log:
        print(run_build(log, Path(sys.argv[2])).status)


if __name__ == "__main__":
    main()
