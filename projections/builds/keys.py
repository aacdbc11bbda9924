"""
Keys of the local copy: one prefix per kind of entry, as in the seed, and an encoding in which no two meet.

    hash:PATH                 metadata and hash of a file; a cache
    fp:PATH 0 QUALNAME 0 …    fingerprint of a piece of code; a cache
    raw:KEY                   bytes that a program put there; a cache
    gen:PATH                  generation and hash of an output
    stage:STAGE               state of a stage
    dep:STAGE 0 PATH          generation of a dependency that the stage recorded
    runcache:STAGE 0 HASH     what the stage made of one input hash
    cachedby:RUN 0 DIGEST     which entries of the run cache name this run
    run:RUN                   a run: when it began and ended
    plan:RUN                  the stages that it was asked for, and their order
    ranstage:RUN 0 STAGE      what a run did with a stage
    order:POSITION            run ids, in the order in which the runs began
    remote:REMOTE 0 HASH      a content that the remote holds
    copy:NAME                 what the copy says of itself

Parts are separated by a NUL byte, and a NUL in a part that is not the last is escaped, with the byte 1 before
it. So no two different lists of parts have the same key (W4-07), and the keys that start with some parts are
those below them and no others. No prefix starts with another, because each ends with its only colon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ledger import PathTooLongError

if TYPE_CHECKING:
    from .environment import Transaction

LONGEST: Final = 511
"""Maximum number of bytes in a key: LMDB's own."""

HASH: Final = b"hash:"
FINGERPRINT: Final = b"fp:"
RAW: Final = b"raw:"
GENERATION: Final = b"gen:"
STAGE: Final = b"stage:"
DEP: Final = b"dep:"
RUN_CACHE: Final = b"runcache:"
CACHED_BY: Final = b"cachedby:"
RUN: Final = b"run:"
PLAN: Final = b"plan:"
RAN_STAGE: Final = b"ranstage:"
ORDER: Final = b"order:"
REMOTE: Final = b"remote:"
COPY: Final = b"copy:"

CACHES: Final = (HASH, FINGERPRINT, RAW)
"""What is in no log, and is dropped at the cost of hashing again."""
DERIVED: Final = (GENERATION, STAGE, DEP, RUN_CACHE, CACHED_BY, RUN, PLAN, RAN_STAGE, ORDER, REMOTE)
"""What follows from the log, and is made again from it."""


def key(prefix: bytes, *parts: str) -> bytes:
    """The key of an entry. Raises PathTooLongError (spec S4-04), for reading as for writing (W4-06)."""
    found = below(prefix, *parts[:-1]) if len(parts) > 1 else prefix
    found += parts[-1].encode("utf-8", "surrogateescape")
    if len(found) > LONGEST:
        raise PathTooLongError(" ".join(parts), len(found), LONGEST)
    return found


def raw(name: bytes) -> bytes:
    """The key of bytes that a program puts there. Raises PathTooLongError."""
    if len(name) + len(RAW) > LONGEST:
        raise PathTooLongError(repr(name), len(name) + len(RAW), LONGEST)
    return RAW + name


def below(prefix: bytes, *parts: str) -> bytes:
    """What the keys of all entries with these first parts start with."""
    return prefix + b"".join([_escaped(part.encode("utf-8", "surrogateescape")) + b"\0" for part in parts])


def last_part(found: bytes, start: int) -> str:
    """The last part of a key. start: the length of what comes before it."""
    return text(found[start:])


def text(part: bytes) -> str:
    """A part as text; the name of a file that is not text comes back as it was."""
    return part.decode("utf-8", "surrogateescape")


def unescaped(part: bytes) -> bytes:
    """A part that is not the last, as it was before `key`."""
    return part.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1")


def after(prefix: bytes) -> bytes:
    """The least key that is greater than every key with this prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def entries(reader: Transaction, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All entries with a prefix, in order; nothing is changed before its end."""
    cursor = reader.cursor()
    if cursor.set_range(prefix):
        end = after(prefix)
        for found, value in cursor:
            if found >= end:
                return
            yield found, value


def clear(writer: Transaction, prefix: bytes) -> int:
    """Delete all entries with a prefix; returns how many."""
    found = [place for place, _ in entries(writer, prefix)]
    for place in found:
        writer.delete(place)
    return len(found)


def _escaped(part: bytes) -> bytes:
    if b"\0" in part or b"\1" in part:
        return part.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return part
