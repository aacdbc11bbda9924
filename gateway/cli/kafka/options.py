"""Options that several commands of Kafka have."""

from __future__ import annotations

from typing import Annotated

import typer

Kafka = Annotated[
    str | None, typer.Option("--kafka", metavar="HOST:PORT", help="The cluster. Default: LEDGER_KAFKA.")
]
Prefix = Annotated[str, typer.Option(metavar="NAME", help="The prefix of the topics.")]
Tables = Annotated[
    str, typer.Option("--tables", metavar="SCHEMA", help="The schema of the consumers' own tables.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this option it is only shown.")]
