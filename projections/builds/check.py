"""Verifying a local copy: the log is folded anew, up to the copy's position, and compared entry by entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ledger import Cursor, CursorMismatch, Ledger
from ledger.builds.output import OpenOutput
from ledger.builds.remote import OpenRemote
from ledger.builds.run import OpenRun
from ledger.builds.stage import OpenStage
from ledger.domain.names import stream_name

from ..fold import FoldSession, Place, Which
from ..verify.difference import Difference, Kind, bounded, fields_between
from . import keys
from .copy import BuildCopy
from .environment import Environment, Transaction
from .feeder import CURSOR, IDENTITY, difference, events_of, identity
from .fold import NUMBER, Fold
from .places import STORE

MOST: Final = 10_000
"""Differences that a check reports."""
_CATEGORIES: Final = {
    keys.GENERATION: OpenOutput.CATEGORY, keys.STAGE: OpenStage.CATEGORY, keys.DEP: OpenStage.CATEGORY,
    keys.RUN_CACHE: OpenStage.CATEGORY, keys.RUN: OpenRun.CATEGORY, keys.PLAN: OpenRun.CATEGORY,
    keys.RAN_STAGE: OpenRun.CATEGORY, keys.CACHED_BY: OpenRun.CATEGORY, keys.ORDER: OpenRun.CATEGORY,
    keys.REMOTE: OpenRemote.CATEGORY,
}  # fmt: skip
_WHOLE: Final = {keys.GENERATION, keys.STAGE, keys.RUN, keys.PLAN, keys.ORDER}
"""The kinds of entries with one part in their keys, or with a run id as their value."""
_NUMBERED: Final = {keys.GENERATION, keys.STAGE, keys.DEP, keys.RUN}
"""The kinds of entries whose values begin with a number."""


class CopyCheck:
    """A check of `pledger verify`: compares the local copy in a folder with the log.

    The copy is compared at its own position, so writers cause no false alarm, and one that is behind is no
    difference. Neither is one that is empty or of another ledger. Repairing makes the copy again.
    """

    name: Final = "build_copy"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._repaired = False

    def differences(
        self, ledger: Ledger, which: Which, report: Callable[[int], None]
    ) -> Iterator[Difference]:
        """The entries that differ, of the selected streams, at most MOST. Raises StateDBError."""
        environment = Environment.shared(self.folder / STORE)
        try:
            with environment.reading() as kept:
                found = [*islice(self._found(ledger, which, kept, report), MOST)]
        finally:
            environment.release()
        yield from found  # outside of the snapshot, in which a repair could not write

    def repair(self, ledger: Ledger, difference: Difference) -> str | None:
        """Make the copy again, once."""
        if not self._repaired:
            with BuildCopy(ledger, self.folder, self._project) as copy:
                copy.rebuild()
            self._repaired = True
        return "repaired"

    def _found(
        self, ledger: Ledger, which: Which, kept: Transaction, report: Callable[[int], None]
    ) -> Iterator[Difference]:
        found, cursor = kept.get(IDENTITY), kept.get(CURSOR)
        told = {} if found is None else json.loads(found)
        if found is None or cursor is None or told["ledger"] != str(ledger.identity.ledger):
            return
        self._project = told["project"]
        wrong = difference(found, identity(self._project, told["ledger"]))
        position = 0
        try:
            position = ledger.check_cursor(Cursor.parse(cursor.decode()))
        except CursorMismatch as error:
            wrong = str(error)
        if wrong is not None:
            yield Difference(Kind.VIEW, self.name, None, f"the copy {self.folder}: {wrong}", view=self.name)
        else:
            yield from self._compared(ledger, which, kept, position, report)

    def _compared(
        self, ledger: Ledger, which: Which, kept: Transaction, position: int, report: Callable[[int], None]
    ) -> Iterator[Difference]:
        """The differences from a fold of the log up to a position."""
        project = self._project
        with TemporaryDirectory() as folder:
            anew = Environment(Path(folder))
            try:
                with FoldSession(*Place.of(ledger)) as session, session.snapshot():

                    def work(writer: Transaction) -> int:
                        with closing(events_of(session, project, 0, position)) as events:
                            return Fold(writer, project)(events)

                    report(anew.write(work))
                with anew.reading() as folded:
                    for prefix in keys.DERIVED:
                        yield from self._of_kind(prefix, which, kept, folded)
            finally:
                anew.close()

    def _of_kind(
        self, prefix: bytes, which: Which, kept: Transaction, folded: Transaction
    ) -> Iterator[Difference]:
        there, right = dict(keys.entries(kept, prefix)), dict(keys.entries(folded, prefix))
        for key in sorted({*there, *right}):
            old, new = there.get(key), right.get(key)
            if old == new:
                continue
            stream = self._stream(prefix, key, old or new or b"")
            if stream.startswith(which.prefix):
                says = "differs" if old and new else "is missing" if new else "exists without an event"
                before, after = shown(prefix, old), shown(prefix, new)
                fields = bounded([*fields_between(before, after)]) if old and new else ()
                what = f"the entry {keys.text(key)!r} {says}"
                yield Difference(Kind.VIEW, stream, None, what, fields, view=self.name)

    def _stream(self, prefix: bytes, key: bytes, value: bytes) -> str:
        """The stream that an entry follows from."""
        first = value if prefix == keys.ORDER else key[len(prefix) :]
        if prefix not in _WHOLE:
            first = keys.unescaped(first.partition(b"\0")[0])
        return stream_name(_CATEGORIES[prefix], self._project, keys.text(first))


def shown(prefix: bytes, value: bytes | None) -> Any:
    """The value of an entry as JSON, for a reader."""
    if value is None:
        return None
    number = {"number": NUMBER.unpack_from(value)[0]} if prefix in _NUMBERED else {}
    rest = value[NUMBER.size :] if number else value
    try:
        return {**number, "value": json.loads(rest)} if rest else number
    except ValueError:
        return {**number, "value": keys.text(rest)}
