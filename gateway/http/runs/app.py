"""The application under /api: every route of the Prefect-compatible API, and its errors in Prefect's form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Final

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from ledger import Ledger
from ledger.runs.client_events import ClientEvents

from ..access import Access
from . import (
    admin,
    artifacts,
    automations,
    blocks,
    deployments,
    events,
    flow_runs,
    flows,
    graphs,
    limits,
    logs,
    saved_searches,
    socket_routes,
    states,
    task_runs,
    variables,
    work_pools,
    work_queues,
)
from .refusals import HANDLERS
from .services import PrefectSettings, Services
from .socket_routes import Sockets

ROUTES: Final[Sequence[Sequence[BaseRoute]]] = (
    flow_runs.ROUTES, task_runs.ROUTES, flows.ROUTES, admin.ROUTES, logs.ROUTES, limits.ROUTES,
    deployments.ROUTES, blocks.ROUTES, work_pools.ROUTES, work_queues.ROUTES, variables.ROUTES,
    artifacts.ROUTES, automations.ROUTES, events.ROUTES, states.ROUTES, saved_searches.ROUTES,
    graphs.ROUTES, socket_routes.ROUTES,
)  # fmt: skip
"""The routes of each resource, those that are called most often first."""


class PrefectApi:
    """The application of one server."""

    def __init__(self, settings: PrefectSettings) -> None:
        self.settings = settings
        self.app = Starlette(
            routes=[one for routes in ROUTES for one in routes], exception_handlers=dict(HANDLERS)
        )

    @contextmanager
    def working(self, ledger: Ledger, access: Access, stop: Event) -> Iterator[None]:
        """Work on this ledger while the block runs, which runs in the server's event loop.

        stop: ends sockets, so that a server can stop.
        """
        state = self.app.state
        record = ClientEvents(ledger).record
        with Services(ledger, self.settings) as services, Sockets(ledger, record) as sockets:
            state.services, state.access, state.stop = services, access, stop
            state.sockets, services.intake = sockets, sockets.intake
            yield
