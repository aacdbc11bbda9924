"""`pledger serve`: the ledger over HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Misuse
from .jobs.worker import stopped_by_signals
from .machines.lookup import Modules, imported_machines
from .output import flush, json_line, write
from .session import AsJson, Session, session_of
from .stderr import log_to_stderr

if TYPE_CHECKING:
    from ..http.app import Settings

Host = Annotated[str, typer.Option(metavar="HOST", help="The address to listen at.")]
Port = Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0: any free one.")]
WithoutToken = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE",
        help="Let requests without a token in, as reader, operator or admin; only at a loopback address.",
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", metavar="ORIGIN", help="Let web pages of this origin call. Repeatable."),
]
Prefect = Annotated[
    bool,
    typer.Option(
        "--prefect", help="Serve the API of Prefect 3 under /api, too: its clients work on the ledger."
    ),
]
PrefectVersion = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The version of Prefect to name; by default that of the client."),
]
Services = Annotated[
    bool,
    typer.Option(
        "--services/--no-services",
        help="Whether this process also runs the services of runs, with --prefect.",
    ),
]


def serve(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    without_token: WithoutToken = None,
    origins: Origins = None,
    modules: Modules = None,
    prefect: Prefect = False,
    prefect_version: PrefectVersion = None,
    services: Services = True,
    as_json: AsJson = False,
) -> None:
    """Serve the ledger over HTTP until Ctrl-C or SIGTERM.

    Jobs, dead letters, streams, the log, views, projects and machines; the page /docs lists all requests. A
    request needs a token (`pledger token add`), whose name is the actor of what it records. It speaks HTTP
    only: put a proxy that speaks TLS before it, for other machines. Needs the extra `server`; with
    --prefect also `runs`. Clients of Prefect get PREFECT_API_URL=URL/api and
    PREFECT_API_AUTH_STRING=NAME:TOKEN, with the token of an operator.

    \b
    Examples:
      pledger token add dashboard --role reader
      pledger serve
      pledger serve --without-token operator --allow-origin http://localhost:5173
      pledger serve --prefect --without-token operator

    Prints its address when it is ready. JSON, one object then: url.
    """
    session = session_of(context, as_json)
    listen, run = _server()
    settings = _settings(host, without_token, origins or [])
    if prefect:
        settings = _with_prefect(settings, prefect_version, services)
    session.know_views()
    imported_machines(modules)
    program = "pledger serve --prefect" if prefect else "pledger serve"
    with session.ledger(program, max_size=20, timeout=5.0) as log:
        try:
            place = listen(host, port)
        except OSError as error:
            raise Misuse(f"{host}:{port} cannot be used: {error.strerror or error}") from error
        url = f"http://{f'[{host}]' if ':' in host else host}:{place.getsockname()[1]}"
        with place, stopped_by_signals() as stop, log_to_stderr(session, "uvicorn", "gateway", "ledger"):
            run(log, place, stop, settings, lambda: _ready(session, url))


def _server() -> tuple[Any, Any]:
    """The functions that listen and serve. Raises Misuse where the extra is missing."""
    try:
        from ..http.serve import listening, serve
    except ModuleNotFoundError as error:
        raise Misuse(f"`serve` needs the extra `server` of pipeline-ledger ({error})") from error
    return listening, serve


def _settings(host: str, without_token: str | None, origins: list[str]) -> Settings:
    """What the options tell the server. Raises Misuse."""
    from ledger.tokens import Role

    from ..http.app import Settings

    if without_token is None:
        return Settings(origins=origins)
    if without_token not in [*Role]:
        raise Misuse(f"--without-token {without_token!r} must be {', '.join(Role)}")
    if not _is_loopback(host):
        raise Misuse(f"--without-token works only at a loopback address such as 127.0.0.1, not at {host}")
    return Settings(Role(without_token), {"localhost", "127.0.0.1", "::1", host}, origins)


def _with_prefect(settings: Settings, version: str | None, services: bool) -> Settings:
    """The settings of a server that also serves the API of Prefect. Raises Misuse."""
    from ..http.runs.services import PrefectSettings

    if version is not None and not re.fullmatch(r"\d+\.\d+\.\d+[\w.+-]*", version):
        raise Misuse(f"--prefect-version {version!r} must be a version such as 3.9.1")
    return replace(settings, prefect=PrefectSettings(version, services))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _ready(session: Session, url: str) -> None:
    if session.json:
        json_line({"url": url})
    else:
        write(f"{url}\n")
    flush()
    session.say(f"serving at {url}, with its page at {url}/docs; Ctrl-C ends it")
