"""The project's events, and the project as it was at one of them."""

from __future__ import annotations

from typing import Final

from ledger import Ledger, Recorded, split_name
from ledger.domain.names import project_key
from ledger.pipelines import LSM, LSMProjectState, LSMProjectStateView, LSMStateService

CATEGORIES: Final = frozenset(kind.CATEGORY for kind in LSM)
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
    return category in CATEGORIES and parts[0] == key


def as_of(log: Ledger, project: str, position: int) -> LSMProjectStateView:
    """The project as of a position of the log."""
    view: LSMProjectStateView = LSMStateService(log).store.peek(project, lambda view: view, upto=position)
    return view
