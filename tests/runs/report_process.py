"""A process that records frames as a server does, and says what it has recorded: `report_process DSN FILE`.

FILE: JSON, a list of batches of frames. It writes the number of each batch after its commit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ledger
from ledger.runs.client_events import ClientEvents


def main(dsn: str, path: str) -> None:
    """Record the batches one after the other."""
    with ledger.connect(dsn, actor="reporter") as log:
        events = ClientEvents(log)
        for nth, frames in enumerate(json.loads(Path(path).read_text())):
            assert not any(events.record(frames))
            print(nth, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
