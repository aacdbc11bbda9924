"""The machines of the user's modules, for what asks guards or wants the states as they are declared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..session import imported

if TYPE_CHECKING:
    from ledger.machines import Machine

Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--machines",
        metavar="MODULE",
        help="Import a module that declares machines; also LEDGER_MACHINES. Repeatable.",
    ),
]


def imported_machines(modules: Sequence[str] | None) -> Mapping[str, type[Machine]]:
    """Every machine that is known once these modules and those of LEDGER_MACHINES are imported, by name.

    Raises Misuse for a module that cannot be imported.
    """
    from ledger.machines import MACHINES

    named = os.environ.get("LEDGER_MACHINES", "").split(",")
    for name in filter(None, map(str.strip, (*(modules or ()), *named))):
        imported(name, "module of machines")
    return MACHINES
