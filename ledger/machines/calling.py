"""Whether a function can be what a machine asks or calls: looked at when it is declared, not at a move."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import InvalidCallback


def check_call(name: str, function: Callable[..., Any], asked: bool) -> None:
    """Refuse what could not be called, or would always be true. Raises InvalidCallback.

    asked: it is a guard. A function in C may not say what it takes; then it is taken as it is.
    """
    parts = "(object, last transition, metadata)" if asked else "(object, what happens)"
    if inspect.iscoroutinefunction(function):
        raise InvalidCallback(f"{name} is async and would never be awaited: it must be a plain function")
    try:
        inspect.signature(function).bind(*parts.split(","))
    except TypeError as error:
        raise InvalidCallback(f"{name} is called with {parts}, and takes something else: {error}") from None
    except ValueError:
        pass
