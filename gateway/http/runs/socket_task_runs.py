"""
`/task_runs/subscriptions/scheduled`: background task runs for the clients that serve their tasks.

A client sends `{"type": "subscribe", "keys": [task keys], "client_id": …}` after its login, gets a task run
when one waits, and answers `{"type": "ack"}` before it gets the next; `{"type": "quit"}` ends the socket.
What a client says against this is answered by a close with 4001.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread
from starlette.websockets import WebSocket, WebSocketDisconnect

from consumers.runs.task_offers import LEASE, Offer, TaskOffers, offer_of
from ledger import Ledger, LedgerError, Recorded, ServerUnavailable
from ledger.domain.names import split_name
from ledger.runs.json_values import plain
from ledger.runs.states import StateType
from ledger.runs.task_run import OpenTaskRun, TaskRunStateSet, task_run_shown
from ledger.tokens import Role
from projections import Follower

from .socket_feed import Feed, Subscription
from .socket_login import admitted, first_message

if TYPE_CHECKING:
    from .socket_routes import Sockets

LOOK: Final = 10.0
"""Seconds between two looks for what waits that the feed did not tell: leases that ran out."""
AGAIN: Final = 0.5
"""Seconds before the ledger is read again while it cannot be reached."""
VIOLATION: Final = 4001
LOG: Final = logging.getLogger("gateway.http")


class NewOffers:
    """The task runs that begin to wait, from the end of the log on: a source of a feed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._follower = Follower(ledger, ledger.bound(), topics=[TaskRunStateSet.topic])

    @property
    def place(self) -> int:
        """The position up to which it was read."""
        return self._follower.position

    def poll(self) -> Sequence[Recorded] | None:
        """The next changes of states of task runs; None at the end."""
        return self._follower.poll() or None

    def chosen(self, batch: Sequence[Recorded], filters: Sequence[None]) -> list[list[Offer]]:
        """The task runs that wait, the same for all."""
        scheduled = {
            fact.stream
            for fact in batch
            if isinstance(fact.event, TaskRunStateSet) and fact.event.status == StateType.SCHEDULED.lower()
        }
        runs = self._ledger.load_each([OpenTaskRun(*split_name(stream)[1]) for stream in scheduled])
        offers = [offer for run in runs if (offer := offer_of(run.state)) is not None]
        return [offers for _ in filters]


class Handout:
    """Gives the background task runs that wait to the clients of this server, each to one."""

    def __init__(self, ledger: Ledger, limiter: CapacityLimiter) -> None:
        self.offers, self._limiter = TaskOffers(ledger), limiter
        self._feed: Feed[None, Offer] = Feed(partial(NewOffers, ledger), ledger.wakeup, "new task runs")
        self._clients: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[str, Offer]] = {}
        self._held: set[Offer] = set()
        self._asking: set[tuple[frozenset[str], asyncio.Future[None]]] = set()
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def serving(self, keys: frozenset[str]) -> Iterator[None]:
        """Look for runs of these tasks while the block runs."""
        self._clients.update(keys)
        if self._looking is not None:
            self._looking.cancel()  # so that the next one looks for these tasks at once
        self._looking = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            self._clients.subtract(keys)
            self._clients += Counter()
            self._waiting = {key: found for key, found in self._waiting.items() if key in self._clients}
            if not self._clients and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def put(self, offers: Iterable[Offer], *, first: bool = False) -> None:
        """Offer task runs that nobody here has. first: before the others, as retries are."""
        for offer in offers:
            if offer.task_key in self._clients and offer not in self._held:
                of_key = self._waiting.setdefault(offer.task_key, OrderedDict())
                of_key[offer.id] = offer
                if first or offer.retry:
                    of_key.move_to_end(offer.id, last=False)
        for keys, found in self._asking:
            if not found.done() and any(self._waiting.get(key) for key in keys):
                found.set_result(None)

    async def next(self, keys: frozenset[str]) -> Offer:
        """The next task run of one of these tasks; nobody else here gets it until it is freed."""
        while True:
            for key in keys:
                if of_key := self._waiting.get(key):
                    _, offer = of_key.popitem(last=False)
                    self._held.add(offer)
                    return offer
            asking = keys, asyncio.get_running_loop().create_future()
            self._asking.add(asking)
            try:
                await asking[1]
            finally:
                self._asking.discard(asking)

    def free(self, offers: Iterable[Offer]) -> None:
        """No client here has these any more."""
        self._held.difference_update(offers)

    async def in_thread(self, act: Callable[..., Any], *given: Any) -> Any:
        """Call what reads or writes."""
        return await to_thread.run_sync(act, *given, limiter=self._limiter)

    async def _look(self) -> None:
        """Offer what the feed tells, and what waits besides: from before, or since a lease ran out."""
        while True:
            new: Subscription[None, Offer] = Subscription(None)
            try:
                await self.in_thread(self._feed.subscribe, new)
                await self._offer_all(new)
            except Exception as error:
                LOG.warning(
                    "background task runs wait: %s", error, exc_info=not isinstance(error, LedgerError)
                )
                await asyncio.sleep(AGAIN)
            finally:
                self._feed.leave(new)

    async def _offer_all(self, new: Subscription[None, Offer]) -> None:
        while True:
            self.put(await self.in_thread(self.offers.waiting, set(self._clients)))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    while (offers := await new.next()) is not None:
                        self.put(offers)
                    return


class TaskClient:
    """A client that executes background task runs, and those that it has."""

    def __init__(self, websocket: WebSocket, handout: Handout, keys: frozenset[str], id: str) -> None:
        self._websocket, self._handout, self._keys, self._id = websocket, handout, keys, id
        self._given: Offer | None = None
        self._has: set[Offer] = set()
        self._messages: asyncio.Queue[Any] = asyncio.Queue()

    async def run(self) -> None:
        """Give it task runs until it is gone, or has had enough."""
        with self._handout.serving(self._keys):
            tasks = [asyncio.ensure_future(act()) for act in (self._read, self._give_all, self._renew)]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                await self._leave()
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, LedgerError | WebSocketDisconnect):
                raise end

    async def _read(self) -> None:
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            try:
                self._messages.put_nowait(json.loads(message.get("text") or ""))
            except ValueError:
                self._messages.put_nowait(None)

    async def _give_all(self) -> None:
        while True:
            self._given = offer = await self._handout.next(self._keys)
            run = await self._handout.in_thread(self._handout.offers.take, offer, self._id)
            if run is None:
                self._given = None
                self._handout.free([offer])
                continue
            await self._websocket.send_text(json.dumps(plain(task_run_shown(run))))
            message = await self._messages.get()
            match message.get("type") if isinstance(message, dict) else None:
                case "ack":
                    self._has.add(offer)
                    self._given = None
                case "quit":
                    return await self._websocket.close()
                case _:
                    return await refuse(self._websocket, "expected 'ack' message")

    async def _renew(self) -> None:
        """Keep the leases of what the client has and has not begun yet."""
        self._has |= await self._handout.in_thread(self._handout.offers.of_client, self._id)
        while True:
            has = frozenset(self._has)
            try:
                waits = await self._handout.in_thread(self._handout.offers.renew, has)
            except ServerUnavailable:
                waits = has
            self._has -= has - waits
            self._handout.free(has - waits)
            await asyncio.sleep(LEASE / 3)

    async def _leave(self) -> None:
        """What it did not acknowledge is offered again at once; the rest when its lease runs out."""
        self._handout.free(self._has)
        if (given := self._given) is not None:
            self._handout.free([given])
            with suppress(LedgerError):
                await asyncio.shield(self._handout.in_thread(self._handout.offers.give_back, given))
            self._handout.put([given], first=True)


async def scheduled_task_runs(websocket: WebSocket) -> None:
    """Serve a client that executes background task runs."""
    if await admitted(websocket, Role.OPERATOR) is None:
        return
    try:
        message = await first_message(websocket)
    except WebSocketDisconnect:
        return
    except (TimeoutError, ValueError):
        message = {}
    keys, id = message.get("keys"), message.get("client_id")
    if message.get("type") != "subscribe":
        await refuse(websocket, "expected 'subscribe' message")
    elif not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        await refuse(websocket, "expected 'keys' in subscribe message")
    elif not isinstance(id, str) or not id:
        await refuse(websocket, "expected 'client_id' in subscribe message")
    else:
        sockets: Sockets = websocket.app.state.sockets
        await TaskClient(websocket, sockets.handout, frozenset(keys), id).run()


async def refuse(websocket: WebSocket, what: str) -> None:
    """End a socket whose client does not keep to the protocol, as Prefect's server does."""
    with suppress(WebSocketDisconnect):
        await websocket.close(VIOLATION, f"Protocol violation: {what}")
