"""Streams of machines whose module nobody imported: what the ledger holds is enough to fold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger import Ledger


def know_machine(log: Ledger, stream: str) -> None:
    """Know the machine whose moves this stream holds, if the ledger does and no module here declares it."""
    from ledger.errors import BadName
    from ledger.machines.defining import MachineDefinition
    from ledger.machines.transition import stream_of
    from ledger.names import split_name
    from ledger.stream import CATEGORIES

    category, _ = split_name(stream)
    if category in CATEGORIES or log.head(MachineDefinition.name_of(category)) is None:
        return
    try:
        stream_of(category, "ledger.machines")
    except BadName:
        return  # no machine of ours records under such a name
