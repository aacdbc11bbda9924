"""
Which Kafka topic the events of a stream go to, and the names of all topics. A permanent contract.

    ledger.jobs                     events of job, batch, queue, schedule, job_key and operation streams
    ledger.machines                 definitions of machines
    ledger.lsm, ledger.psoct        events of lsm.… and psoct.… streams
    ledger.DOMAIN                   events of all others, by the first segment of their category
    ledger.DOMAIN.states            the current state of each stream (compacted)
    ledger.views.in_state, ledger.views.progress         views (compacted)
    ledger.checkpoint               how far the relay has come (compacted)
    TOPIC.GROUP.dlq                 the dead letters of a group of consumers

`ledger` is the prefix. A stream is always in one topic and one partition, so its events keep their order.
Changing any of this moves streams to other topics: the relay then refuses to go on (see `ROUTING`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from struct import iter_unpack
from typing import Final

from ledger import BadName

ROUTING: Final = 1
"""The number of these rules, which the relay's checkpoint names."""

DOMAINS: Final = {
    "batch": "jobs",
    "job": "jobs",
    "job_key": "jobs",
    "machine": "machines",
    "operation": "jobs",
    "queue": "jobs",
    "schedule": "jobs",
}
"""The domains of shipped categories that are not named after them."""

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_PLAIN = re.compile(r"(?!x-|views_|checkpoint\Z)[a-z0-9][a-z0-9_-]{0,79}(?<!_states)\Z")
"""Names that Kafka allows, without those that it would confuse with ours: to it `.` and `_` are the same."""
_M, _WORD = 0x5BD1E995, 0xFFFFFFFF


def domain_of(stream: str) -> str:
    """The domain of a stream, as its topic names it; the same for all streams of a category.

    A name that Kafka does not allow, or that would be one of ours, becomes `x-NAME-DIGEST`, with what is not
    allowed as `-`.
    """
    return _domain(stream.partition("/")[0])


@lru_cache(maxsize=4096)
def _domain(category: str) -> str:
    if (shipped := DOMAINS.get(category)) is not None:
        return shipped
    name = category.partition(".")[0]
    if _PLAIN.match(name):
        return name
    shown = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return f"x-{shown}-{sha256(name.encode()).hexdigest()[:12]}".replace("--", "-")


@dataclass(frozen=True, slots=True)
class Routes:
    """The names of the topics below a prefix. Raises BadName for a prefix that Kafka does not allow."""

    prefix: str = "ledger"

    def __post_init__(self) -> None:
        if not _PREFIX.match(self.prefix):
            raise BadName(
                "prefix", self.prefix, "must be 1 to 60 letters, digits, '.', '_', '-', such as 'ledger'"
            )

    def topic_of(self, stream: str) -> str:
        """The topic of a stream's events."""
        return f"{self.prefix}.{domain_of(stream)}"

    def topic(self, domain: str) -> str:
        """The topic of a domain's events."""
        return f"{self.prefix}.{domain}"

    def states(self, domain: str) -> str:
        """The topic of the current states of a domain's streams."""
        return f"{self.prefix}.{domain}.states"

    @property
    def in_state(self) -> str:
        """The topic of the view `in_state`."""
        return f"{self.prefix}.views.in_state"

    @property
    def progress(self) -> str:
        """The topic of the view `progress`."""
        return f"{self.prefix}.views.progress"

    @property
    def checkpoint(self) -> str:
        """The topic of the relay's checkpoint."""
        return f"{self.prefix}.checkpoint"

    @property
    def transactional_id(self) -> str:
        """The relay's transactional id: one for a prefix, so that two relays of any name fence each other."""
        return f"pledger-relay-{self.prefix}"

    def is_events(self, topic: str) -> bool:
        """Whether a topic is one of these prefix' topics of events."""
        head, _, domain = topic.rpartition(".")
        return head == self.prefix and domain != "checkpoint"


def dead_letters(topic: str, group: str) -> str:
    """The topic of a group's dead letters of a topic. Raises BadName."""
    if not _GROUP.match(group):
        raise BadName("group", group, "must be 1 to 100 letters, digits, '.', '_', '-'")
    return f"{topic}.{group}.dlq"


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, as Kafka's own clients choose it in all languages."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """The hash of Kafka's default partitioner, without a sign.

    It is here so that naming a topic does not load the client, and because it is faster than the client's.
    """
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for (k,) in iter_unpack("<I", key[:whole]):
        k = k * _M & _WORD
        h = (h * _M & _WORD) ^ ((k ^ k >> 24) * _M & _WORD)
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15
