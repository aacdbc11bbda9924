"""Filters, pages and counts: the questions that clients POST, and the lists that answer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from ledger.runs.records import Record
from projections.runs import count_records, records, run_history

from .bodies import Body
from .calls import Call

MOST: Final = 200
"""Rows of a page, at most, and where a client does not say: as Prefect's server has it."""
MOST_AT_ONCE: Final = 50
"""Objects that one bulk request changes, at most."""
Filter: TypeAlias = dict[str, Any] | None
Limit: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)] | None
Offset: TypeAlias = Annotated[int, Meta(ge=0, lt=2**40)]
PageNumber: TypeAlias = Annotated[int, Meta(ge=1, lt=2**30)]


class Question(Body, kw_only=True):
    """Which objects are meant: filters by kind, as `projections.runs` reads them; others are ignored."""

    flows: Filter = None
    flow_runs: Filter = None
    task_runs: Filter = None
    deployments: Filter = None
    work_pools: Filter = None
    work_pool_queues: Filter = None
    work_queues: Filter = None
    workers: Filter = None
    artifacts: Filter = None
    artifact_collections: Filter = None
    variables: Filter = None
    block_types: Filter = None
    block_schemas: Filter = None
    block_documents: Filter = None
    automations: Filter = None
    sort: str | None = None
    limit: Limit = None
    offset: Offset = 0
    page: PageNumber = 1

    def filters(self) -> dict[str, Any]:
        """The filters that were given."""
        found = {name: value for name in FILTERS if (value := getattr(self, name)) is not None}
        if (queues := found.pop("work_queues", None)) is not None:
            found.setdefault("work_pool_queues", queues)
        return found

    @property
    def many(self) -> int:
        """Rows of the page, at most."""
        return MOST if self.limit is None else self.limit


class HistoryQuestion(Question, kw_only=True):
    """The runs of a time, in intervals of so many seconds."""

    history_start: datetime
    history_end: datetime
    history_interval_seconds: Annotated[float, Meta(ge=1, lt=1e9)]


FILTERS: Final = tuple(
    name for name in Question.__struct_fields__ if name not in ("sort", "limit", "offset", "page")
)

Read: TypeAlias = Callable[..., Sequence[Any]]
Show: TypeAlias = Callable[[Any], Any]


def listed(call: Call, asked: Question, read: Read, show: Show) -> list[Any]:
    """The rows of a page, as fresh as the log. read: a list function of `projections.runs`."""
    call.services.settle()
    found = read(call.services.ledger, asked.filters(), asked.sort, asked.offset, asked.many)
    return [show(one) for one in found]


def counted(call: Call, asked: Question, count: Callable[..., int]) -> int:
    """How many there are."""
    call.services.settle()
    return count(call.services.ledger, asked.filters())


def paginated(call: Call, asked: Question, read: Read, count: Callable[..., int], show: Show) -> Any:
    """A page by its number, with how many pages there are."""
    asked.offset, many = (asked.page - 1) * asked.many, counted(call, asked, count)
    pages = -(-many // asked.many) if asked.many else 0
    rows = listed(call, asked, read, show)
    return {"results": rows, "count": many, "limit": asked.many, "pages": pages, "page": asked.page}


def history(call: Call, asked: HistoryQuestion, kind: Literal["flow_runs", "task_runs"]) -> Any:
    """How many runs were expected in each interval, by state."""
    call.services.settle()
    interval = timedelta(seconds=asked.history_interval_seconds)
    start, end = aware(asked.history_start), aware(asked.history_end)
    return run_history(call.services.ledger, kind, asked.filters(), start, end, interval)


def aware(at: datetime) -> datetime:
    """Clients mean UTC where they say no offset."""
    return at if at.utcoffset() is not None else at.replace(tzinfo=UTC)


def reading(kind: str, **more: Any) -> Read:
    """The list function of a kind of records, such as `flows`."""

    def read(ledger: Any, body: Any, sort: Any, offset: int, limit: int) -> Sequence[Record]:
        return records(ledger, kind, body, sort, offset, limit, **more)

    return read


def counting(kind: str, **more: Any) -> Callable[..., int]:
    """The count function of a kind of records."""

    def count(ledger: Any, body: Any) -> int:
        return count_records(ledger, kind, body, **more)

    return count


def at_once(asked: Question) -> Question:
    """The question of a bulk request: not more than it may change."""
    asked.limit = min(asked.many, MOST_AT_ONCE)
    return asked


def deleted(call: Call, asked: Question, read: Read, delete: Callable[[str], Any]) -> dict[str, list[str]]:
    """Delete all objects that are meant, each in an append of its own; their ids."""
    found: list[str] = listed(call, at_once(asked), read, lambda one: one.id)
    for id in found:
        delete(id)
    return {"deleted": found}
