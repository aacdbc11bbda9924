"""The commands of `pledger`, in panels. Each is imported when it is called, so a call loads no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer
from typer import core
from typer.core import TyperGroup

from .errors import Misuse

if TYPE_CHECKING:
    # Typer contains its own copy of click and does not export its types.
    Command = Any
    Context = Any
    Formatter = Any


class Group(NamedTuple):
    """A command with commands below it. alone: what it does without one; else one must be named."""

    help: str
    commands: Mapping[str, str]
    alone: str | None = None


OF_PIPELINE: Final = "pipelines.group:group_of"
"""The function that makes the group of a pipeline."""
PANELS: Final[dict[str, dict[str, str | Group]]] = {
    "Look": {
        "status": "status:status", "log": "log:log_", "tail": "log:tail", "streams": "streams:streams",
        "history": "streams:history", "show": "streams:show", "changes": "changes:changes",
    },
    "Audit": {
        "diff": "audit:diff", "blame": "audit:blame", "why": "audit:why", "states": "states:states",
        "dwell": "states:dwell",
        "as-of": Group(
            "The whole ledger as of a position or a time: make, list, drop.",
            {"make": "as_of:make", "list": "as_of:list_", "drop": "as_of:drop"},
        ),
        "verify": "verify:verify",
    },
    "Record": {"append": "append:append", "import": "exchange:import_", "export": "exchange:export"},
    "Pipelines": {"lsm": OF_PIPELINE, "psoct": OF_PIPELINE, "react": "reactors:react"},
    "Machines": {
        "machines": Group(
            "State machines: definitions, diagrams, checks.",
            {
                "list": "machines.show:list_", "show": "machines.show:show",
                "diagram": "machines.diagram:diagram", "check": "machines.check:check",
                "adopt": "machines.adopt:adopt", "timeouts": "machines.timeouts:timeouts",
            },
        ),
    },
    "Jobs": {
        "jobs": Group(
            "Jobs: submit, look, wait, cancel, retry.",
            {
                "submit": "jobs.submit:submit", "list": "jobs.show:list_", "show": "jobs.show:show",
                "result": "jobs.show:result", "events": "jobs.show:events", "wait": "jobs.submit:wait",
                "cancel": "jobs.change:cancel", "retry": "jobs.change:retry",
                "comment": "jobs.change:comment", "describe": "jobs.change:describe",
            },
        ),
        "worker": Group(
            "Workers: run operations, list them.", {"run": "jobs.worker:run", "list": "jobs.worker:list_"}
        ),
        "dead": Group(
            "Dead letters: what failed, why, redriving or discarding it.",
            {
                "list": "jobs.dead:list_", "show": "jobs.dead:show", "redrive": "jobs.dead:redrive",
                "discard": "jobs.dead:discard",
            },
        ),
        "queues": Group(
            "Queues: what waits where, and pausing it.",
            {"list": "jobs.queues:list_queues", "pause": "jobs.queues:pause", "resume": "jobs.queues:resume"},
        ),
        "operations": Group(
            "Limits of operations across all workers.",
            {"limit": "jobs.queues:limit", "list": "jobs.queues:list_operations"},
        ),
        "schedules": Group(
            "Jobs that are submitted again and again.",
            {
                "set": "jobs.schedules:set_", "list": "jobs.schedules:list_", "show": "jobs.schedules:show",
                "pause": "jobs.schedules:pause", "resume": "jobs.schedules:resume",
                "remove": "jobs.schedules:remove", "next": "jobs.schedules:next_",
            },
        ),
        "reaper": Group("The reaper: ends claims of vanished workers.", {"run": "jobs.worker:run_reaper"}),
    },
    "Runs": {
        "runs": Group(
            "Flow runs and task runs: look, cancel, import a Prefect database.",
            {
                "list": "runs.show:list_", "show": "runs.show:show", "history": "runs.history:history",
                "cancel": "runs.cancel:cancel", "import": "runs.imports:import_",
                "rotate-keys": "runs.keys:rotate_keys", "services": "runs.services:services",
            },
        ),
    },
    "Server": {
        "serve": "serve:serve",
        "token": Group(
            "Tokens of clients of the server: add, list, revoke.",
            {"add": "tokens:add", "list": "tokens:list_", "revoke": "tokens:revoke"},
        ),
    },
    "Builds": {
        "builds": Group(
            "Builds: run stages, see why they ran and what runs did.",
            {
                "run": "builds.run:run", "why": "builds.why:why", "status": "builds.status:status",
                "history": "builds.history:history", "show": "builds.history:show",
                "import": "builds.imports:import_", "gc": "builds.keep:gc", "verify": "builds.keep:verify",
                "rebuild": "builds.keep:rebuild", "reset-fingerprints": "builds.keep:reset_fingerprints",
            },
        ),
    },
    "Kafka": {
        "kafka": Group(
            "Kafka: a broker on this machine, and whether a cluster can be used.",
            {
                "broker": "kafka.broker:broker", "check": "kafka.broker:check",
                "schema": "kafka.schema:schema",
            },
        ),
        "relay": Group(
            "The relay: publish the log to Kafka, see how far it is, prove it, publish it anew.",
            {
                "run": "kafka.relay:run", "status": "kafka.relay:status", "verify": "kafka.verify:verify",
                "replay": "kafka.relay:replay",
            },
        ),
        "consume": Group(
            "Consumers of Kafka topics: run one, list groups, rewind a group.",
            {"run": "kafka.consume:run", "list": "kafka.consume:list_", "rewind": "kafka.consume:rewind_"},
        ),
        "dlq": Group(
            "Dead letters of consumers: what failed, why, redriving or discarding it.",
            {
                "list": "kafka.dlq:list_", "show": "kafka.dlq:show", "redrive": "kafka.dlq:redrive_",
                "discard": "kafka.dlq:discard_",
            },
        ),
    },
    "Operate": {
        "init": "admin:init", "doctor": "admin:doctor",
        "views": Group(
            "The state of views, following them, and what is parked in them.",
            {
                "follow": "views:follow", "feed": "kafka.feed:feed", "metrics": "views:metrics",
                "parked": "views:parked", "retry": "views:retry", "attach": "views:attach",
                "detach": "views:detach",
            },
            alone="views:views",
        ),
        "reactors": Group(
            "The positions of reactors, and the streams that they parked.",
            {"list": "reactors:list_", "parked": "reactors:parked", "retry": "reactors:retry"},
        ),
        "rebuild": "rebuild:rebuild", "completion": "completion:completion",
    },
}  # fmt: skip
"""The commands, by panel, in the order in which help shows them: MODULE:FUNCTION below this package."""

PIPELINES: Final = {
    "lsm": "Projects of the LSM pipeline: slices of channels of strips.",
    "psoct": "Projects of the PS-OCT pipeline: slices of mosaics of batches.",
}
"""The help of the shipped pipelines; help does not import the declarations that make their commands."""


class OnDemand(MutableMapping[str, "Command"]):
    """Commands by name; the module of a command is imported when the command is looked up.

    places: where each is, by default those of PANELS.
    """

    def __init__(self, places: Mapping[str, str | Group] | None = None) -> None:
        panels = {name: place for panel in PANELS.values() for name, place in panel.items()}
        self._places = panels if places is None else dict(places)
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            part, place = typer.Typer(rich_markup_mode=None), self._places[name]
            if isinstance(place, Group):
                part.add_typer(_group(place), name=name)
            elif place == OF_PIPELINE:
                part.add_typer(_found(place)(name), name=name)
            else:
                part.command(name)(_found(place))
            made: Any = typer.main.get_group(part).commands[name]
            if isinstance(place, Group):
                made.commands = OnDemand(place.commands)
            self._made[name] = made
        return self._made[name]

    def short_help(self, name: str, room: int) -> str:
        """The first sentence of a command's help, in at most so many characters.

        The command is not made: to read the parameters of all of them takes as long as their imports.
        """
        place = self._places[name]
        if name in self._made or place == OF_PIPELINE:
            return str(self[name].get_short_help_str(room))
        about = place.help if isinstance(place, Group) else getdoc(_found(place))
        return core.TyperCommand(name, help=about).get_short_help_str(room)

    def __setitem__(self, name: str, command: Command) -> None:
        self._made[name] = command

    def add_pipelines(self, names: Iterable[str]) -> None:
        """Add the pipelines of these names as commands."""
        self._places |= {name: OF_PIPELINE for name in names if name not in self._places}

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _group(declared: Group) -> typer.Typer:
    """The group without the commands below it."""
    group = typer.Typer(cls=Below, help=declared.help, rich_markup_mode=None)
    if declared.alone is not None:
        group.callback(invoke_without_command=True)(_found(declared.alone))
    return group


def _found(place: str) -> Any:
    """The function of a MODULE:FUNCTION below this package."""
    module, _, function = place.partition(":")
    return getattr(import_module(f".{module}", __package__), function)


class Below(TyperGroup):
    """A group below `pledger`: one of its commands is called without the others."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.commands)


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
        return PIPELINES.get(name) or self.commands.short_help(name, room)


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
