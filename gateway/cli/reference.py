"""The reference of the command line, made from the commands themselves.

`python -m gateway.cli.reference > docs/reference/cli.md` writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from .errors import MEANING
from .main import app

OPENING = """\
# The command line

Made by `python -m gateway.cli.reference` from the commands themselves; change it there.

Results go to stdout, everything else to stderr. On a terminal results are tables that fit its width, with
times in the local zone. Elsewhere each row is a line of tab-separated values, untruncated, without titles,
with times in UTC. With `--json` the result is one JSON object, or one object per line; times are ISO 8601
with their offset. Later versions may add keys and remove none. An error is one sentence on stderr. With
`--json` it is one object on stderr: `error` (the class), `message`, `parts` (the attributes of the error),
`exit`.

In the name of a stream `%`, `/` and control characters inside a part are written `%25`, `%2F`, `%0A`. Write
an argument that starts with `-` after `--`.
"""


def reference() -> str:
    """The reference as Markdown."""
    root: Any = typer.main.get_command(app)
    parts = [
        OPENING,
        "## Options of every command\n\nWrite them before or after the command.\n",
        _options(root),
    ]
    parts += [_command(name, command) for name, command in walk(root)]
    codes = "\n".join(f"| {code.value} | `{code.name}` | {meaning} |" for code, meaning in MEANING.items())
    parts.append(f"## Exit codes\n\n| code | name | meaning |\n|---|---|---|\n{codes}\n")
    return "\n".join(parts)


def walk(group: Any, above: str = "pledger") -> Iterator[tuple[str, Any]]:
    """Every command below a group, with its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from walk(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


def _command(name: str, command: Any) -> str:
    arguments = [_metavar(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *arguments, "[OPTIONS]"])
    return f"## {name}\n\n    {usage}\n\n{_prose(command.help)}\n\n{_options(command)}"


def _prose(text: str) -> str:
    """A help text as Markdown; its examples, which the parser does not wrap, become code."""
    lines = iter(inspect.cleandoc(text).splitlines())
    prose = []
    for line in lines:
        if line == "\b":
            prose += [next(lines), ""]
        else:
            prose.append(f"  {line}" if line.startswith("  ") else line)
    return "\n".join(prose)


def _options(command: Any) -> str:
    rows = [
        f"| {_spelling(p)} | {p.help}{_default(p)} |"
        for p in command.params
        if p.help and "--help" not in p.opts
    ]
    return "\n".join(["| | |", "|---|---|", *rows, ""])


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter)}`"
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join(f"`{option}{value}`" for option in parameter.opts)


def _metavar(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return f"[{name}]" if parameter.param_type_name == "argument" and not parameter.required else name


def _default(parameter: Any) -> str:
    given = parameter.default
    return "" if given in (None, False, "", ()) or callable(given) else f" Default: {given}."


if __name__ == "__main__":
    print(reference(), end="")
