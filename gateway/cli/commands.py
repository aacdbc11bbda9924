"""The commands of `pledger`, in panels. Each is imported when it is called, so a call loads no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer import core
from typer.core import TyperGroup

from .errors import Misuse

if TYPE_CHECKING:
    # Typer contains its own copy of click and does not export its types.
    Command = Any
    Context = Any
    Formatter = Any

PANELS: Final[dict[str, dict[str, str]]] = {
    "Look": {
        "status": "status",
        "log": "log",
        "tail": "log",
        "streams": "streams",
        "history": "streams",
        "show": "streams",
        "changes": "changes",
    },
    "Audit": {
        "diff": "audit",
        "blame": "audit",
        "why": "audit",
        "states": "states",
        "dwell": "states",
        "as-of": "as_of",
        "verify": "verify",
    },
    "Record": {
        "append": "append",
        "import": "exchange",
        "export": "exchange",
    },
    "Pipelines": {
        "lsm": "pipelines.group",
        "psoct": "pipelines.group",
        "react": "reactors",
    },
    "Machines": {
        "machines": "machines.group",
    },
    "Jobs": {
        "jobs": "jobs.group",
        "worker": "jobs.group",
        "dead": "jobs.group",
        "queues": "jobs.group",
        "operations": "jobs.group",
        "schedules": "jobs.group",
        "reaper": "jobs.group",
    },
    "Operate": {
        "init": "admin",
        "doctor": "admin",
        "views": "views",
        "reactors": "reactors",
        "rebuild": "rebuild",
        "completion": "completion",
    },
}
"""The module below `gateway` that adds each command, by panel, in the order in which help shows them."""

PIPELINES: Final = {
    "lsm": "Projects of the LSM pipeline: slices of channels of strips.",
    "psoct": "Projects of the PS-OCT pipeline: slices of mosaics of batches.",
}
"""The help of the shipped pipelines; help does not import the declarations that make their commands."""


class OnDemand(MutableMapping[str, "Command"]):
    """Commands by name; the module of a command is imported when the command is looked up."""

    def __init__(self) -> None:
        self._modules = {name: module for panel in PANELS.values() for name, module in panel.items()}
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            part = typer.Typer(rich_markup_mode=None)
            import_module(f".{self._modules[name]}", __package__).add_to(part)
            self._made |= typer.main.get_group(part).commands
        return self._made[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._made[name] = command

    def add_pipelines(self, names: Iterable[str]) -> None:
        """Add the pipelines of these names as commands."""
        self._modules |= {name: "pipelines.group" for name in names if name not in self._modules}

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Commands(TyperGroup):
    """`pledger` itself: its help shows the commands in panels. The user's pipelines are commands, too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: OnDemand = OnDemand()

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name not in self.commands:
            own_pipelines(self.commands, ctx.params)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Context, formatter: Formatter) -> None:
        with suppress(Misuse):  # help must not fail because of a user's module
            own_pipelines(self.commands, ctx.params)
        widest = max(map(len, self.commands))
        room = formatter.width - 6 - widest
        shown = {name for names in PANELS.values() for name in names}
        own = [name for name in self.commands if name not in shown]
        for title, panel in PANELS.items():
            names = [*(own if title == "Pipelines" else ()), *panel]
            told = [(name.ljust(widest), self.help_of(name, room)) for name in names]
            with formatter.section(title):
                formatter.write_dl(told)

    def help_of(self, name: str, room: int) -> str:
        """The first sentence of a command's help, in at most so many characters."""
        return PIPELINES.get(name) or self.commands[name].get_short_help_str(room)


def own_pipelines(commands: OnDemand, options: Mapping[str, Any]) -> None:
    """Import the domains in the options and the configuration, and add their pipelines as commands.

    Raises Misuse for a module that cannot be imported.
    """
    from .config import load
    from .session import import_domains

    file = load(options.get("config"))
    file.find_modules()
    if import_domains((*file.domains, *(options.get("domain") or ()))):
        from ledger.pipelines import PIPELINES as known

        commands.add_pipelines(known)


class PlainValue:
    """Reads texts, integers and defaults of a parameter; leaves all else, and every error, to Typer.

    Typer 0.29 reads each value with a validator of pydantic; that import takes a third of a short command.
    """

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value for the command. Raises typer.BadParameter."""
        kind = self.descriptor.annotation
        if type(value) is kind:
            return value
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind == list[str] and not isinstance(value, str) and all(type(one) is str for one in value):
            return list(value)
        if kind is int and type(value) is str and value.isascii() and value.isdecimal() and len(value) < 19:
            number = int(value)
            if (param.min is None or param.min <= number) and (param.max is None or number <= param.max):
                return number
        return _BUILD(self.descriptor).coerce(value, param=param, ctx=ctx)


_BUILD: Any = vars(core).get("build_runtime_param")  # not in every version of Typer
if _BUILD is not None:
    vars(core)["build_runtime_param"] = PlainValue
