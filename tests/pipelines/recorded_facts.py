"""What was recorded, in words, and what must hold of it: each head is the fold of its stream's events."""

from __future__ import annotations

from ledger import Ledger, split_name
from ledger.pipelines import LSM, OCT

KINDS = {kind.CATEGORY: kind for kind in (*LSM, *OCT)}


def check_heads(log: Ledger) -> int:
    """Compare the head of every item with the fold of all events of its stream; the number of items."""
    streams = [info for category in KINDS for info in log.streams(f"{category}/", limit=100_000)]
    for info in streams:
        category, key = split_name(info.stream)
        kind = KINDS[category]
        folded = kind(*key, past=[(each.event, each.recorded_at) for each in log.read(info.stream)])
        loaded, head = log.load(kind, *key), log.head(info.stream)
        assert (loaded.state, loaded.version) == (folded.state, folded.version), info.stream
        assert head is not None
        assert (head.version, head.state_version) == (folded.version, folded.version)
        assert head.status == folded.state.status
    return len(streams)


def recorded(log: Ledger) -> list[tuple[str, str]]:
    """Stream and topic of every event, in the order of the log."""
    return [(event.stream, event.topic) for event in log.log(0, log.bound())]


def words(log: Ledger, stream: str) -> list[str]:
    """The last words of the topics of one stream."""
    return [event.topic.rpartition(".")[2] for event in log.read(stream)]
