"""Every route with the role that it needs: the table of docs/reference/http.md, which a test walks, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastapi.routing import APIRoute

from ledger.tokens import Role

from .access import Needs, Open
from .app import ROUTERS


class Declared(NamedTuple):
    """A route: what it is called by, the role that it needs (None: for everybody), and what it does."""

    method: str
    path: str
    role: Role | None
    about: str


def declared() -> list[Declared]:
    """All routes, in the order of their paths. Raises TypeError for one without exactly one role."""
    found = [one for router in ROUTERS for route in router.routes for one in _of(route)]
    return sorted(found, key=lambda one: (one.path, one.method))


def _of(route: object) -> Iterator[Declared]:
    if not isinstance(route, APIRoute):
        raise TypeError(f"{route!r} is no route with a role")
    called = (one.call for one in route.dependant.dependencies)
    roles = [one.role for one in called if isinstance(one, Needs | Open)]
    if len(roles) != 1:
        raise TypeError(
            f"{route.path_format} must have one of OPEN, READER, OPERATOR, ADMIN, not {len(roles)}"
        )
    for method in sorted(route.methods or ()):
        yield Declared(method, route.path_format, roles[0], route.description.partition("\n")[0])
