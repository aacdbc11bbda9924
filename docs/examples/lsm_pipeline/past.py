"""The project as it was: every event up to a position, folded as the ledger itself folds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from ledger import Ledger, Recorded, split_name
from ledger.frozen import FrozenDict
from ledger.names import project_key
from ledger.project_state import LSM, LSMProjectState, LSMProjectStateView, OpenItem

KINDS: Final = {kind.CATEGORY: kind for kind in LSM}
PAGE: Final = 1000


def events_of(log: Ledger, project: str) -> list[Recorded]:
    """Every event of a project, in the order of the log."""
    key, bound = project_key(project), log.bound()
    (first,) = log.read(LSMProjectState.name_of(project), limit=1)
    after, found = first.position - 1, []
    while page := log.log(after, bound, PAGE):
        after = page[-1].position
        found += [recorded for recorded in page if is_of(recorded, key)]
    return found


def is_of(recorded: Recorded, key: str) -> bool:
    category, parts = split_name(recorded.stream)
    return category in KINDS and parts[0] == key


def folded(events: Iterable[Recorded]) -> LSMProjectStateView:
    """The project that these events make: up to any position, this is the project as of that position."""
    items: dict[str, OpenItem[Any]] = {}
    for recorded in events:
        if recorded.stream not in items:
            category, parts = split_name(recorded.stream)
            items[recorded.stream] = KINDS[category](*parts)
        items[recorded.stream].replay(recorded.event, recorded.recorded_at)
    below: dict[tuple[str | int, ...], dict[Any, Any]] = defaultdict(dict)
    view: Any = None
    for item in sorted(items.values(), key=lambda item: (-len(item.key), item.key)):
        field = getattr(item, "CHILDREN", None)
        view = replace(item.state, **{field: FrozenDict(below[item.key])}) if field else item.state
        below[item.key[:-1]][item.key[-1]] = view
    assert isinstance(view, LSMProjectStateView)
    return view
