"""
Routes without a body, whose parameters are read by a plan that is made once.

FastAPI finds out for each request what kind of parameter each one is, which costs more than a short answer.
A `PlannedRoute` is declared and described as any route of FastAPI is, and checks its parameters with the
same validators; what does not fit is left to FastAPI, so that the errors are the same. A route with a body,
or with a dependency that takes more than the request, is left to FastAPI altogether.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction, signature
from typing import Any, Final

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

Handle = Callable[[Request], Coroutine[Any, Any, Response]]
Fields = Sequence[Any]
Dependency = tuple[str | None, Any, bool]
"""A dependency that takes the request or nothing: its name, its function, whether it takes the request."""
PLACES: Final = ("path", "query", "header")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request. given: its name there. many: it may be given several times."""

    name: str
    given: str
    many: bool
    needed: bool
    field: Any


class Parameters:
    """The parameters that a route has in one place: the path, the query or the headers."""

    def __init__(self, place: str, fields: Fields) -> None:
        self._place, self._fields = place, fields
        self._parameters = [self._parameter(field) for field in fields]

    def _parameter(self, field: Any) -> Parameter:
        info, given = field.field_info, field.alias
        if self._place == "header" and given == field.name:
            given = given.replace("_", "-")
        many = getattr(info.annotation, "__origin__", None) is list or "list[" in str(info.annotation)
        needed = info.is_required() or bool(info.validate_default)
        return Parameter(field.name, given, many, needed, field)

    def read(self, given: Any) -> tuple[dict[str, Any], Sequence[Any]]:
        """Their values by name, and what is wrong with them."""
        values: dict[str, Any] = {}
        for one in self._parameters:
            value = given.getlist(one.given) if one.many else given.get(one.given)
            if value is None or value == []:
                if one.needed:
                    return request_params_to_args(self._fields, given)
                values[one.name] = one.field.get_default()
                continue
            values[one.name], wrong = one.field.validate(value, values, loc=(self._place, one.given))
            if wrong:
                return request_params_to_args(self._fields, given)
        return values, ()


class PlannedRoute(APIRoute):
    """A route that reads its parameters by a plan, where it has no body."""

    def get_route_handler(self) -> Handle:
        """The function that answers a request."""
        dependencies = [_dependency(one) for one in self.dependant.dependencies]
        if self.body_field is not None or self.dependant.cookie_params or None in dependencies:
            return super().get_route_handler()
        return _Plan(self.dependant, [one for one in dependencies if one is not None]).handle


def _dependency(one: Dependant) -> Dependency | None:
    """How a dependency is called; None: it takes more than the request."""
    if one.dependencies or one.path_params or one.query_params or one.header_params or one.body_params:
        return None
    taken = [*signature(one.call).parameters] if one.call is not None else []
    if one.call is None or taken not in ([], [one.request_param_name]):
        return None
    return one.name, one.call, bool(taken)


class _Plan:
    """How a route answers: its dependencies, its parameters, and the function that makes the answer."""

    def __init__(self, dependant: Dependant, dependencies: Sequence[Dependency]) -> None:
        self._call: Any = dependant.call
        self._in_loop = iscoroutinefunction(self._call)
        self._request, self._dependencies = dependant.request_param_name, dependencies
        self._parameters = [Parameters(place, getattr(dependant, f"{place}_params")) for place in PLACES]

    async def handle(self, request: Request) -> Response:
        """Answer a request. Raises RequestValidationError."""
        values: dict[str, Any] = {} if self._request is None else {self._request: request}
        for name, dependency, takes_request in self._dependencies:
            found = await (dependency(request) if takes_request else dependency())
            if name is not None:
                values[name] = found
        self._read(request, values)
        call = self._call
        answer = await (call(**values) if self._in_loop else asyncio.to_thread(call, **values))
        assert isinstance(answer, Response), f"{call} must return a Response"
        return answer

    def _read(self, request: Request, values: dict[str, Any]) -> None:
        wrong: list[Any] = []
        places = (request.path_params, request.query_params, request.headers)
        for parameters, given in zip(self._parameters, places, strict=True):
            found, errors = parameters.read(given)
            values |= found
            wrong += errors
        if wrong:
            raise RequestValidationError(wrong)
