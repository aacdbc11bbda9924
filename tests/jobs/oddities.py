"""What an operation may return, and mostly may not."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from consumers.jobs import OperationResult


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Odd(Mapping[str, Any]):
    """A mapping that raises when it is looked at."""

    def __getitem__(self, key: str) -> Any:
        raise SystemExit

    def __iter__(self) -> Iterator[str]:
        raise SystemExit

    def __len__(self) -> int:
        return 1


VALUES: dict[str, Callable[[], Any]] = {
    "nan": lambda: OperationResult({"n": float("nan")}),
    "nul": lambda: OperationResult({"n": "a\x00"}),
    "bytes": lambda: OperationResult({"n": b"x"}),
    "surrogate": lambda: OperationResult({"n": "\ud800"}),
    "deep": lambda: OperationResult({"n": nested(5000)}),
    "object": lambda: OperationResult({"n": object()}),
    "lock": lambda: OperationResult({"n": _thread.allocate_lock()}),
    "key": lambda: OperationResult({1: 2}),  # type: ignore[dict-item]
    "large": lambda: OperationResult({"n": "x" * (17 * 2**20)}),
    "odd": lambda: OperationResult(Odd()),
    "list": lambda: OperationResult([1]),  # type: ignore[arg-type]
    "dict": lambda: {"n": 1},
    "text": lambda: "done",
    "progress": lambda: OperationResult(progress_current=2**70),
    "half": lambda: OperationResult(progress_current=0.5),  # type: ignore[arg-type]
    "big": lambda: OperationResult({"n": 2**70}),
    "tuple": lambda: OperationResult({"n": (1, 2)}),
}
