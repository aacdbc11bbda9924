"""`pledger machines diagram`: draw a machine with its live counts, as Mermaid, DOT or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import Misuse, Unwritable
from ..output import json_line, write
from ..session import AsJson, session_of
from .lookup import Name, Number, shown_machine

if TYPE_CHECKING:
    from .picture import Picture

FORMATS: Final = ("mermaid", "dot", "svg")
ENDINGS: Final = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg"}
PICTURES: Final = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps", ".bmp", ".tiff")
"""File name endings of formats that other programs make from a drawing."""

Kind = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="F", help="mermaid, dot or svg. Default: by the name of FILE, or mermaid."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the diagram to this file; an existing file is replaced."),
]
NoCounts = Annotated[bool, typer.Option("--no-counts", help="Draw the definition without counts.")]


def diagram(
    context: typer.Context,
    name: Name,
    format: Kind = None,
    number: Number = None,
    no_counts: NoCounts = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Draw a machine. The colours show how many of its objects are in each state.

    GitHub, GitLab and many wikis draw Mermaid; Graphviz draws DOT. SVG needs no other program, and follows
    the reader's light or dark mode. The same definition and counts give the same bytes.

    \b
    Examples:
      pledger machines diagram payment --output payment.svg
      pledger machines diagram payment --no-counts >> README.md

    JSON, one object: machine, definition, format, objects (null without counts), and diagram (the text) or
    output (the file).
    """
    session = session_of(context, as_json)
    kind = _kind(name, format, output)
    with session.ledger() as log:
        found = shown_machine(session, log, name, number, counted=not no_counts)
    text = drawn(found.picture, kind)
    if output is not None:
        _save(text, output)
    if session.json:
        start = {"machine": name, "definition": found.definition.number, "format": kind}
        start |= {"objects": None if no_counts else found.picture.objects}
        json_line(start | ({"diagram": text} if output is None else {"output": str(output)}))
    elif output is None:
        write(text)
    else:
        session.say(f"{found.picture.title}: drawn in {output}")


def drawn(picture: Picture, kind: str) -> str:
    """The text of a picture in a format of FORMATS."""
    from .dot import dot
    from .mermaid import mermaid
    from .svg import svg

    return {"mermaid": mermaid, "dot": dot, "svg": svg}[kind](picture)


def _save(text: str, output: Path) -> None:
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise Unwritable(f"the output {output} cannot be written: {error.strerror or error}") from error


def _kind(name: str, given: str | None, output: Path | None) -> str:
    """The format. Raises Misuse."""
    if output is not None and output.suffix.lower() in PICTURES:
        kind = output.suffix.lower()[1:]
        raise Misuse(
            f"{str(output)!r} has a format that is not supported: write .svg, .mmd or .dot; Graphviz "
            f"converts the last: pledger machines diagram {name} --format dot | "
            f"dot -T{kind} > {output}"
        )
    if given is not None:
        if given not in FORMATS:
            raise Misuse(f"--format {given!r} must be mermaid, dot or svg")
        return given
    if output is None:
        return FORMATS[0]
    if output.suffix.lower() not in ENDINGS:
        raise Misuse(
            f"give --format mermaid, dot or svg for {str(output)!r}, or a file name that ends in "
            f"{', '.join(ENDINGS)}"
        )
    return ENDINGS[output.suffix.lower()]
