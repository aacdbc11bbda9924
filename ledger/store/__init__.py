"""
The store. Also a persistence module of the `eventsourcing` library: PERSISTENCE_MODULE=ledger.store, and
LEDGER_DSN says where.

That library looks for a factory in this module's `__dict__`. It is put there when that is first asked for:
importing it here would make every `import ledger` a twentieth slower (16 ms measured), and the library
changes the standard `dataclasses` module when it is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .factory import LedgerFactory

__all__ = ["LedgerFactory"]


class _Store(ModuleType):
    """This module, with its factory on demand."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        names: dict[str, Any] = super().__dict__
        if "LedgerFactory" not in names:
            from .factory import LedgerFactory

            names["LedgerFactory"] = LedgerFactory
        return names

    def __getattr__(self, name: str) -> Any:
        if name in __all__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Store
