"""`pledger completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Final

import typer

from .output import json_line, write
from .session import AsJson, session_of

VARIABLE: Final = "_PLEDGER_COMPLETE"
"""Set by the script when it requests the words that may follow."""


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


Name = Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]


def prepare() -> None:
    """Let Typer answer in the format of its own script, if a shell requests completions."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def completion(context: typer.Context, shell: Name, as_json: AsJson = False) -> None:
    """Print the script that completes commands and options in a shell.

    Use it in this session, or in every session through the shell's startup file:

    \b
      eval "$(pledger completion bash)"
      pledger completion fish > ~/.config/fish/completions/pledger.fish

    JSON: shell, script.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    session = session_of(context, as_json)
    script = get_completion_script(prog_name="pledger", complete_var=VARIABLE, shell=shell.value)
    if session.json:
        json_line({"shell": shell.value, "script": script})
    else:
        write(f"{script}\n")
