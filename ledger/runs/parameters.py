"""
Parameters of deployments: filled in, and checked against the schema of the flow.

A schema is a JSON schema (draft 2020-12) as pydantic writes it for the flow's signature. Nothing is fetched:
a reference to another document is an invalid schema. A value may stand for another one:

    {"__prefect_kind": "json", "value": "[1, 2]"}
    {"__prefect_kind": "workspace_variable", "variable_name": "threshold"}

Jinja templates, a third kind of Prefect's, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from ..errors import BadParameters, RecordNotFound, shown
from .json_values import plain
from .records import Records

_KIND = "__prefect_kind"


def checked_parameters(
    parameters: Mapping[str, Any], schema: Mapping[str, Any] | None, *, partial: bool = False
) -> None:
    """Raise BadParameters where parameters do not fit a schema, or the schema is none.

    partial: parameters that the schema requires may be missing, because each run can give them.
    """
    from jsonschema_rs import Draft202012Validator, ValidationError  # the extra `runs`; only who checks

    if not isinstance(schema, Mapping):
        raise BadParameters("parameters", ["there is no schema to check them against"])
    try:
        validator = Draft202012Validator(prepared(schema, partial=partial), retriever=_refuse)
    except ValidationError as error:
        raise BadParameters("parameter_openapi_schema", [f"is no valid schema: {error.message}"]) from None
    wrong = [_wrong(error.instance_path, error.message) for error in validator.iter_errors(dict(parameters))]
    if wrong:
        raise BadParameters("parameters", wrong)


def prepared(schema: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """A schema as Prefect reads it: an optional parameter of some type may be null too.

    So pydantic 1 meant it. partial: without `required`, at any depth.
    """
    ready = deepcopy(dict(schema))
    for part in (ready, *(ready.get("definitions") or {}).values()):
        _prepare(part)
    return _without_required(ready) if partial else ready


def _prepare(part: Any) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("properties"), dict):
        return
    for name, field in part["properties"].items():
        if not isinstance(field, dict):
            continue
        optional = name not in (part.get("required") or []) and "default" not in field
        if optional and field.get("type") not in (None, "null"):
            field["anyOf"] = [{"type": field.pop("type")}, {"type": "null"}]
        if isinstance(field.get("items"), list) and field["items"] and not field.get("prefixItems"):
            field["prefixItems"] = field.pop("items")
        _prepare(field)


def _without_required(value: Any) -> Any:
    """Without the keyword; a property of that name stays."""
    if isinstance(value, list):
        return [_without_required(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_required(item)
        for key, item in value.items()
        if not (key == "required" and isinstance(item, list))
    }


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched: put it into the schema")


def _wrong(path: Iterable[str | int], message: str) -> str:
    place = ".".join(map(str, path))
    return f"{place}: {message}" if place else message


def filled_in(value: Any, variable: Callable[[str], Any]) -> Any:
    """A value with what stands for others replaced. variable: returns the value of a variable by its name.

    Raises BadParameters, and what `variable` raises.
    """
    if isinstance(value, list | tuple):
        return [filled_in(item, variable) for item in value]
    if not isinstance(value, Mapping):
        return value
    match value.get(_KIND):
        case None if _KIND in value:
            return filled_in(value.get("value"), variable)
        case None:
            return {key: filled_in(item, variable) for key, item in value.items()}
        case "json":
            return _parsed(filled_in(value.get("value"), variable))
        case "workspace_variable":
            name = filled_in(value.get("variable_name"), variable)
            if not isinstance(name, str):
                raise BadParameters("parameters", ["a workspace_variable has no variable_name"])
            return variable(name)
        case kind:
            raise BadParameters("parameters", [f"values of the kind {shown(kind)} are not supported"])


def variable_value(records: Records, name: str) -> Any:
    """The value of a variable, for `filled_in`. Raises BadParameters where there is none of this name."""
    try:
        return plain(records.named("variable", name)["value"])
    except RecordNotFound:
        raise BadParameters("parameters", [f"there is no variable {name}"]) from None


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadParameters("parameters", [f"a value of the kind 'json' is no JSON: {error}"]) from None
