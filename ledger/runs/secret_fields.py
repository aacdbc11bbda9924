"""
Secret values of a block: which they are by its schema, hidden and put back.

The schema lists them in `secret_fields`, as paths: `token`, `login.password`, and `settings.*` for all that
is in `settings`. A path leads through lists too; of a dict at its end all values are secret. Prefect's server
overlooks secrets in lists, and such dicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "********"
"""What is shown instead of a secret, however long it is."""


def secret_paths(schema: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The paths of the secret fields of a schema."""
    return [tuple(str(field).split(".")) for field in schema.get("secret_fields") or ()]


def hidden(data: Mapping[str, Any], paths: Iterable[Sequence[str]]) -> dict[str, Any]:
    """The data with HIDDEN in place of each secret; None stays."""
    shown = dict(data)
    for path in paths:
        shown = _hide(shown, path)
    return shown


def put_back(
    given: Mapping[str, Any], current: Mapping[str, Any], paths: Iterable[Sequence[str]]
) -> dict[str, Any]:
    """Given data with the present secret in each secret place that has HIDDEN.

    A client that sends back what it was shown so changes no secret.
    """
    after = dict(given)
    for path in paths:
        after = _restore(after, current, path)
    return after


def _hide(value: Any, path: Sequence[str]) -> Any:
    if not path or path[0] == "*":
        return None if value is None else _all_hidden(value)
    if isinstance(value, list | tuple):
        return [_hide(item, path) for item in value]
    if isinstance(value, Mapping) and path[0] in value:
        return {**value, path[0]: _hide(value[path[0]], path[1:])}
    return value


def _all_hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _all_hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_all_hidden(item) for item in value]
    return HIDDEN


def _restore(given: Any, current: Any, path: Sequence[str]) -> Any:
    if not path or path[0] == "*":
        return _put_back(given, current)
    if isinstance(given, list | tuple) and isinstance(current, list | tuple):
        there = [*current, *[None] * len(given)]
        return [_restore(item, old, path) for item, old in zip(given, there, strict=False)]
    if isinstance(given, Mapping) and isinstance(current, Mapping) and path[0] in given:
        return {**given, path[0]: _restore(given[path[0]], current.get(path[0]), path[1:])}
    return given


def _put_back(given: Any, current: Any) -> Any:
    if given == HIDDEN and current is not None:
        return current
    if isinstance(given, Mapping) and isinstance(current, Mapping):
        return {key: _put_back(item, current.get(key)) for key, item in given.items()}
    if isinstance(given, list | tuple) and isinstance(current, list | tuple):
        there = [*current, *[None] * len(given)]
        return [_put_back(item, old) for item, old in zip(given, there, strict=False)]
    return given
