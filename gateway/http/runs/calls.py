"""
Routes of the Prefect API: a function that gets the call, its body and the parameters of its path.

    @ROUTES.post("/{id:uuid}/set_state")
    def set_state(call: Call, body: SetState, id: str) -> Reply: …

The type of the parameter `body` says what is read from the request; what the function returns is answered
as JSON. It runs in a thread, in which everything that is recorded has the caller as its actor. A GET and a
`look` (a POST that only reads, such as a filter) need the role reader, everything else operator.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_type_hints

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ledger import acting
from ledger.tokens import Role

from ..access import Caller
from ..answers import JSON, encoded
from .bodies import Reader
from .logins import actor_of, caller_of

if TYPE_CHECKING:
    from .services import Services

CLIENT: Final = re.compile(r"prefect/(\d+\.\d+\.\d+\S*) ")
"""A client of Prefect in its header User-Agent."""
Handler: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A request: who sends it, and the services that it may use. query, headers: as they were sent.

    base: the address under which the client calls the API.
    """

    services: Services
    caller: Caller
    query: Mapping[str, str]
    headers: Mapping[str, str]
    base: str = ""

    @property
    def client_version(self) -> str | None:
        """The version of Prefect that the client says it is; None if it is none, or does not say."""
        found = CLIENT.match(self.headers.get("user-agent", ""))
        return None if found is None else found[1]


class Reply(NamedTuple):
    """An answer with another status than the route's usual one, or with headers. value None: no body."""

    value: Any
    status: int = 200
    headers: dict[str, str] | None = None


class Endpoint:
    """One route as an ASGI application. It is open to everybody if role is None.

    body: what its body is, where that is not said by the handler.
    """

    def __init__(self, handler: Handler, status: int, role: Role | None, body: Any = None) -> None:
        hints = get_type_hints(handler, include_extras=True)
        self.handler, self.status, self.role = handler, status, role
        self.body = hints.get("body") if body is None else body
        self._read = Reader(self.body) if "body" in signature(handler).parameters else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        headers, state = request.headers, request.app.state
        caller = OPEN_CALLER
        if self.role is not None:
            caller = await caller_of(state.access, headers.get("authorization"), self.role)
        given = {name: str(value) for name, value in scope["path_params"].items()}
        if self._read is not None:
            given["body"] = self._read(await request.body())
        base = f"{scope['scheme']}://{headers.get('host', '')}{scope['root_path']}"
        call = Call(state.services, caller, request.query_params, headers, base)
        found = await asyncio.to_thread(self._run, call, given)
        await self._response(found)(scope, receive, send)

    def _run(self, call: Call, given: dict[str, Any]) -> Any:
        with acting(actor=actor_of(call.caller, call.headers)):
            return self.handler(call, **given)

    def _response(self, found: Any) -> Response:
        if isinstance(found, Response):
            return found
        value, status, headers = found if isinstance(found, Reply) else (found, self.status, None)
        if status == 204:
            return Response(status_code=204, headers=headers)
        return Response(encoded(value), status, headers, media_type=JSON)


OPEN_CALLER: Final = Caller("", Role.READER)
"""Who calls a route that is open to everybody; such a route records nothing."""


class Routes(list[Route]):
    """The routes of one resource, under one prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, path: str, *, role: Role | None = Role.READER) -> Callable[[Handler], Handler]:
        """A route that shows something."""
        return self._route("GET", path, 200, role)

    def look(self, path: str) -> Callable[[Handler], Handler]:
        """A POST that only reads: its body is a question."""
        return self._route("POST", path, 200, Role.READER)

    def post(self, path: str, status: int = 200, body: Any = None) -> Callable[[Handler], Handler]:
        """A route that makes or does something."""
        return self._route("POST", path, status, Role.OPERATOR, body)

    def put(self, path: str, status: int = 200, body: Any = None) -> Callable[[Handler], Handler]:
        """A route that replaces something."""
        return self._route("PUT", path, status, Role.OPERATOR, body)

    def patch(self, path: str, status: int = 204, body: Any = None) -> Callable[[Handler], Handler]:
        """A route that changes something; usually it answers nothing."""
        return self._route("PATCH", path, status, Role.OPERATOR, body)

    def delete(self, path: str, status: int = 204) -> Callable[[Handler], Handler]:
        """A route that deletes something; it answers nothing."""
        return self._route("DELETE", path, status, Role.OPERATOR)

    def _route(
        self, method: str, path: str, status: int, role: Role | None, body: Any = None
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            endpoint = Endpoint(handler, status, role, body)
            self.append(Route(self._prefix + path, endpoint, methods=[method], name=handler.__name__))
            return handler

        return declare
