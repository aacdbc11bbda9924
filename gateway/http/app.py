"""The application: all routes, with their limits, problems and OpenAPI page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from threading import Event
from typing import Any, Final

from anyio import to_thread
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from ledger import Ledger
from ledger.tokens import Role

from . import health, log, streams, views
from .access import Access
from .bodies import Limits, OnlyFrom
from .jobs import dead_letters
from .jobs import routes as jobs
from .jobs.timelines import Timelines
from .machines import routes as machines
from .pipelines import routes as pipelines
from .problems import TYPE, answer_problems
from .runs.app import PrefectApi
from .runs.services import PrefectSettings
from .server_sent_events import News

THREADS: Final = 8
"""Requests that are answered at once; each may need a connection to PostgreSQL."""
OF_FASTAPI: Final = 4
"""Further ones, of routes with a body that FastAPI calls itself."""
ABOUT: Final = (
    "The pipeline ledger over HTTP. Every change is an event; what is shown is derived from the events. "
    "Errors are problems (RFC 9457)."
)
ROUTERS: Final = (
    health.ROUTES, jobs.ROUTES, dead_letters.ROUTES, streams.ROUTES, log.ROUTES, views.ROUTES,
    pipelines.ROUTES, machines.ROUTES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told. without_token: the role of requests without a token; None refuses them.

    hosts: the names under which a server that needs no token may be called. origins: those whose web pages
    may call it. prefect: how the Prefect-compatible API is served under /api; None: not at all.
    """

    without_token: Role | None = None
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    prefect: PrefectSettings | None = None


def make_app(
    ledger: Ledger | None = None, stop: Event | None = None, settings: Settings | None = None
) -> FastAPI:
    """The application on a ledger; without one, only its OpenAPI document can be read.

    stop: ends the streams of events, so that a server can stop.
    """
    told = settings or Settings()
    runs = None if told.prefect is None else PrefectApi(told.prefect)
    app = FastAPIOffline(
        title="Pipeline ledger", version=version("pipeline-ledger"), description=ABOUT,
        lifespan=_life(ledger, stop or Event(), told, runs), redoc_url=None, static_url="/docs-files",
    )  # fmt: skip
    if runs is not None:
        app.mount("/api", runs.app)
    # include_router() would look each request's route up twice, which costs a third of a short answer.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    answer_problems(app)
    _describe(app)
    _guard(app, told)
    return app


def _life(
    ledger: Ledger | None, stop: Event, settings: Settings, runs: PrefectApi | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """What a server keeps while it runs."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        assert ledger is not None
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "request"))
        to_thread.current_default_thread_limiter().total_tokens = OF_FASTAPI
        app.state.ledger, app.state.access = ledger, Access(ledger, settings.without_token)
        app.state.news, app.state.timelines = News(ledger, stop), Timelines(ledger)
        with nullcontext() if runs is None else runs.working(ledger, app.state.access, stop):
            yield

    return life


def _describe(app: FastAPI) -> None:
    """Say in the OpenAPI document of which type problems are; FastAPI knows only one for all answers."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            ways = (way for ways in made()["paths"].values() for way in ways.values())
            for way in ways:
                content = way["responses"]["default"]["content"]
                (schema,) = content.values()
                content.clear()
                content[TYPE] = schema
        return made()

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _guard(app: FastAPI, settings: Settings) -> None:
    """Put the checks that come before any route around the application."""
    guards: list[tuple[Any, dict[str, Any]]] = [(Limits, {})]
    if settings.without_token is not None:
        guards.append((OnlyFrom, {"hosts": settings.hosts, "origins": settings.origins}))
    if settings.origins:
        allowed = {
            "allow_methods": ["*"],
            "allow_headers": ["*"],
            "expose_headers": ["ETag", "Link", "As-Of"],
        }
        guards.append((CORSMiddleware, {"allow_origins": [*settings.origins], **allowed}))
    for guard, given in guards:
        app.add_middleware(guard, **given)
