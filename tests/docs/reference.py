"""The pages under docs/reference that are made from the code; `python -m tests.docs.reference` writes them.

events.md from the event classes, tables.md from the SQL files and the catalog (tables.py), python.md from the
packages' `__all__`, errors.md from ledger/errors.py, cli.md from the commands (gateway/cli/reference.py),
kafka.md from the envelope (consumers/kafka/asyncapi.py), http.md and openapi.json from the routes of the
server (gateway/http/reference.py).
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from consumers.kafka.asyncapi import HEADERS, OPTIONAL, asyncapi
from gateway.cli.error_report import code_of
from gateway.cli.reference import reference as cli
from gateway.cli.session import DOMAINS
from gateway.http.app import make_app
from gateway.http.problems import status_of
from gateway.http.reference import declared
from gateway.http.runs.calls import Endpoint
from gateway.http.runs.document import routes, shown_path
from ledger import errors
from ledger.domain.event import Event
from ledger.domain.known import KNOWN
from ledger.embedded import throwaway
from ledger.log.install import init
from tests.docs.markdown import MADE, first_line, row, table
from tests.docs.pages import ROOT
from tests.docs.tables import tables

FOLDER = ROOT / "docs" / "reference"
PACKAGES = (
    "ledger", "ledger.domain", "ledger.pipelines", "ledger.machines", "ledger.jobs", "ledger.builds",
    "ledger.runs", "ledger.exchange",
    "projections", "projections.views", "projections.audit", "projections.verify",
    "projections.time_travel", "projections.pipelines", "projections.machines", "projections.jobs",
    "projections.builds", "projections.runs",
    "consumers", "consumers.jobs", "consumers.builds", "consumers.runs",
    "consumers.runs.imports", "consumers.kafka", "consumers.kafka.broker",
    "consumers.prefect_flows",
    "ledger.store", "ledger.embedded",
)  # fmt: skip

Connection = psycopg.Connection[Any]


# Events


def events() -> str:
    """Every topic that the shipped domains record, with its fields."""
    ours = _shipped()
    parts = [
        "# Events\n", MADE,
        "Every topic that the domains of this package record. A topic is permanent; its fields only grow.\n"
        "`leads to` is the status after it; an empty cell leaves the status as it is. `schema` is the\n"
        "number of the event's shape.\n",
    ]  # fmt: skip
    categories = dict.fromkeys(topic.rpartition(".")[0] for topic in ours)
    for category in categories:
        rows = (_event(topic, kind) for topic, kind in ours.items() if topic.rpartition(".")[0] == category)
        titles = ("topic", "leads to", "schema", "fields", "what it says")
        parts.append(f"## {category}\n\n{table(*titles, rows=rows)}")
    return "\n".join(parts)


def _shipped() -> dict[str, type[Event]]:
    """The events of the shipped domains, by topic."""
    for domain in DOMAINS:
        importlib.import_module(domain)
    return {
        topic: kind for topic, kind in sorted(KNOWN.events.items()) if kind.__module__.startswith("ledger.")
    }


def _event(topic: str, kind: type[Event]) -> str:
    fields = [
        f"`{name}: {_type(field.annotation)}" + ("`" if field.is_required() else f" = {field.default!r}`")
        for name, field in kind.model_fields.items()
    ]
    leads_to = f"`{kind.to.value}`" if kind.to is not None else ""
    return row(f"`{topic}`", leads_to, kind.schema_number, ", ".join(fields), first_line(kind))


def _type(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type) and not hasattr(annotation, "__args__")
        else str(annotation)
    )


# Python


def python() -> str:
    """Every public name, with its signature and the first lines of its docstring."""
    parts = ["# Python\n", MADE, "Every public name. Nothing else is kept stable.\n"]
    for package in PACKAGES:
        module = importlib.import_module(package)
        parts.append(f"## {package}\n\n{first_line(module)}\n")
        parts += [_entry(name, getattr(module, name)) for name in module.__all__]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        bases = [
            base.__name__ for base in value.__bases__ if base is not object and base.__module__ != "builtins"
        ]
        above = f" ({', '.join(bases)})" if bases else ""
        shown = f"### {name}{above}\n\n{first_line(value)}\n"
        members = [*_members(value)]
        return f"{shown}\n{table('member', 'what it is', rows=members)}" if members else shown
    if inspect.isfunction(value):
        return f"### {name}\n\n`{name}{_signature(value)}`\n\n{first_line(value)}\n"
    if inspect.ismodule(value):
        return f"### {name}\n\n{first_line(value)}\n"
    return f"### {name}\n\n{_constant(value)}\n"


def _constant(value: Any) -> str:
    kind = type(value)
    return (
        f"A constant: {kind.__name__}."
        if kind.__module__.startswith(("ledger", "projections"))
        else "A type alias or table."
    )


def _members(kind: type[Any]) -> Iterator[str]:
    """What the class itself defines: enum values, fields, public methods and properties."""
    if issubclass(kind, enum.Enum):
        yield from (row(f"`{member.name}`", f"`{member.value!r}`") for member in kind)
        return
    if fields := _own_fields(kind):
        yield row(", ".join(f"`{name}`" for name in fields), "fields")
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield row(f"`{name}`", first_line(member))
        elif callable(plain := getattr(member, "__func__", member)) and inspect.isfunction(plain):
            yield row(f"`{name}{_signature(plain)}`", first_line(plain))


def _own_fields(kind: type[Any]) -> list[str]:
    if not dataclasses.is_dataclass(kind):
        return list(getattr(kind, "_fields", ()))
    above = {
        field.name
        for base in kind.__bases__
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    return [field.name for field in dataclasses.fields(kind) if field.name not in above]


def _signature(function: Callable[..., Any]) -> str:
    """Names and defaults; types are in the code, and each version of Python spells them in its own way."""
    found = inspect.signature(function)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    kept = [each for each in bare if each.name not in ("self", "cls")]
    return re.sub(r"<function .*? at 0x[0-9a-f]+>", "…", str(inspect.Signature(kept)))


# Errors


def errors_page() -> str:
    """The tree of errors, what each means, what it carries, and how `pledger` ends with it."""
    tree = (errors.__doc__ or "").strip().partition("\n\n")[2]
    rows = (
        row(
            f"`{name}`",
            first_line(kind),
            ", ".join(f"`{part}`" for part in _parts(kind)),
            int(code_of(kind.__new__(kind))),
            status_of(kind.__new__(kind)),
        )
        for name, kind in error_classes().items()
    )
    titles = ("error", "what it says", "what it carries", "exit code of `pledger`", "HTTP status")
    return "\n".join([
        "# Errors\n", MADE,
        "What to do about each is in [troubleshoot](../how-to/troubleshoot.md).\n",
        f"```\n{tree}\n```\n", table(*titles, rows=rows),
    ])  # fmt: skip


def error_classes() -> dict[str, type[errors.LedgerError]]:
    """Every error of the ledger, in the order of ledger/errors.py."""
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.LedgerError)
    }


def _parts(kind: type[Exception]) -> list[str]:
    if "__init__" not in vars(kind):
        return []
    return list(
        dict.fromkeys(re.findall(r"self\.(\w+)(?=[, ][^(]*=)", inspect.getsource(vars(kind)["__init__"])))
    )


# Records of Kafka


def kafka_page() -> str:
    """The topics of Kafka with the events in them, and the headers of a record, as AsyncAPI says."""
    document = asyncapi(events=_shipped().values())
    topics = [
        row(f"`{channel['address']}`", ", ".join(f"`{name}`" for name in channel["messages"]))
        for channel in document["channels"].values()
    ]
    headers = [
        row(f"`{name}`", "" if name in OPTIONAL else "yes", schema.get("description", _allowed(schema)))
        for name, schema in HEADERS.items()
    ]
    return "\n".join(
        [
            "# Records of Kafka\n", MADE,
            "`pledger kafka schema` prints the same as AsyncAPI with the body of each event, and\n"
            "`pledger kafka schema job.started` one body as JSON Schema. A record's key is the stream, its\n"
            "value the body. [Kafka](../explanation/kafka.md) explains them.\n",
            "## Headers\n", "Values are UTF-8 text.\n", table("header", "always", "holds", rows=headers),
            "## Topics\n",
            "Below the prefix `ledger`. Your own events are in the topic of their stream's domain.\n",
            table("topic of Kafka", "events", rows=topics),
        ]
    )  # fmt: skip


def http_page() -> str:
    """Every request that the server answers, with the role that it needs."""
    rows = (row(f"`{one.method}`", f"`{one.path}`", one.role or "", one.about) for one in declared())
    of_prefect = (
        row(f"`{method}`", f"`/api{shown_path(path)}`", endpoint.role or "", about(endpoint))
        for method, path, endpoint in sorted(routes(), key=lambda one: (one[1], one[0]))
    )
    return "\n".join(
        [
            "# Requests over HTTP\n", MADE,
            "What `pledger serve` answers; [serve over HTTP](../how-to/serve-over-http.md) explains it. The\n"
            "role is that of the token; where there is none, no token is needed.\n"
            "[openapi.json](openapi.json) is the same as an OpenAPI document, with all parameters; a\n"
            "running server shows it at `/docs`.\n",
            table("", "path", "role", "what it does", rows=rows),
            "\n## With --prefect\n",
            "The API of Prefect 3 that `pledger serve --prefect` answers besides;\n"
            "[run Prefect on the ledger](../how-to/run-prefect-on-the-ledger.md) explains it. Its clients\n"
            "also use the sockets `/api/events/in`, `/api/events/out`, `/api/logs/out` and\n"
            "`/api/task_runs/subscriptions/scheduled`.\n",
            table("", "path", "role", "what it does", rows=of_prefect),
        ]
    )  # fmt: skip


def about(endpoint: Endpoint) -> str:
    """The first line of what a route says of itself."""
    return (endpoint.handler.__doc__ or "").partition("\n")[0]


def openapi() -> str:
    """The OpenAPI document of the server."""
    return json.dumps(make_app().openapi(), indent=1, ensure_ascii=False) + "\n"


def _allowed(schema: Mapping[str, Any]) -> str:
    return " or ".join(f"`{value}`" for value in schema.get("enum", ()))


def all_pages(connection: Connection) -> dict[Path, str]:
    """Every generated page and its text."""
    made = {
        "events": events(),
        "tables": tables(connection),
        "python": python(),
        "errors": errors_page(),
        "cli": cli(),
        "kafka": kafka_page(),
        "http": http_page(),
    }
    return {FOLDER / f"{name}.md": text for name, text in made.items()} | {FOLDER / "openapi.json": openapi()}


if __name__ == "__main__":
    with throwaway() as server, psycopg.connect(server.dsn(), autocommit=True) as fresh:
        init(fresh)
        for page, text in all_pages(fresh).items():
            page.write_text(text, encoding="utf-8")
            print(page.relative_to(ROOT))
