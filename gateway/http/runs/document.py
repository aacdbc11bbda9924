"""The routes of the Prefect-compatible API as an OpenAPI document, and as rows for the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from starlette.routing import Route

from ledger.runs.kinds import kind_of

from ..answers import JSON
from .app import ROUTES
from .bodies import FieldsOf
from .calls import Endpoint

PARAMETER: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")
REF: Final = "#/components/schemas/{name}"


def routes() -> Iterator[tuple[str, str, Endpoint]]:
    """The method, the path and the endpoint of each route over HTTP."""
    for one in (one for resource in ROUTES for one in resource):
        if isinstance(one, Route) and isinstance(endpoint := one.endpoint, Endpoint):
            (method,) = (one.methods or set()) - {"HEAD"}
            yield method, one.path, endpoint


def shown_path(path: str) -> str:
    """A path with the names of its parameters only, as OpenAPI has it."""
    return PARAMETER.sub(r"{\1}", path)


def document() -> dict[str, Any]:
    """The OpenAPI document: parameters and bodies of all routes; answers are Prefect's objects."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for method, path, endpoint in routes():
        told = paths.setdefault(shown_path(path), {})
        told[method.lower()] = _operation(path, endpoint, schemas)
    return {
        "openapi": "3.1.0", "info": {"title": "Prefect-compatible API", "version": "1"},
        "paths": paths, "components": {"schemas": schemas},
    }  # fmt: skip


def _operation(path: str, endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": (endpoint.handler.__doc__ or "").strip(),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _of_parameter(kind)}
            for name, kind in PARAMETER.findall(path)
        ],
        "responses": {"default": {"description": "What Prefect's client reads.", "content": {JSON: {}}}},
    }
    if endpoint.body is not None:
        found["requestBody"] = {"content": {JSON: {"schema": _of_body(endpoint.body, schemas)}}}
    return found


def _of_parameter(kind: str) -> dict[str, Any]:
    return {"type": "string", "format": "uuid"} if kind == "uuid" else {"type": "string", "minLength": 1}


def _of_body(body: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    for mark in getattr(body, "__metadata__", ()):
        if isinstance(mark, FieldsOf):
            model = kind_of(mark.kind).model
            whole = model.model_json_schema(ref_template=REF.replace("{name}", "{model}"))
            schemas.update(whole.pop("$defs", {}))
            return whole
    (schema,), parts = msgspec.json.schema_components([body], ref_template=REF)
    schemas.update(parts)
    return schema
