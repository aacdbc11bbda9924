"""Operations that try the leases of their worker."""

from __future__ import annotations

import ctypes
from typing import Any

from consumers.jobs import OperationContext, Registry

registry = Registry()


@registry.operation("hold_interpreter")
def hold_interpreter(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Keep the interpreter's lock for so many seconds: no other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).usleep(int(payload["seconds"] * 1_000_000))
