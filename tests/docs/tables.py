"""The page on tables: from the comments of the SQL files, and the catalog of a fresh ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg

from tests.docs.markdown import MADE, row, table
from tests.docs.pages import ROOT

SQL = ROOT / "ledger" / "log" / "sql"

OTHERWISE = {
    "migrations": "Which numbered migrations were applied, and when.",
    "apply_effects": "Calls the attached inline effects; written by refresh_effects.",
    "has_effects": "Whether an inline effect is attached; written by refresh_effects.",
    "lock_class": "This ledger's lock class, a constant.",
    "mark_name": "The name of the setting that remembers a transaction's mark, a constant.",
    "refuse_change": "Behind the trigger append_only.",
    "refuse_last_position": "Refuse positions that a mark could not hold any more.",
}
"""What is said of those that the SQL says nothing directly above."""

Connection = psycopg.Connection[Any]


def tables(connection: Connection) -> str:
    """Tables, sequence, triggers and functions of the ledger in schema `ledger`, with what the SQL says."""
    said = _comments(
        "\n".join(file.read_text(encoding="utf-8") for file in sorted((SQL / "migrations").glob("*.sql"))),
        r"CREATE (?:UNLOGGED )?(?:TABLE|SEQUENCE) (\w+)",
    )
    parts = [
        "# Tables and functions\n", MADE,
        "What `pledger init` makes in the ledger's schema. Only the functions `append_…` write the log;\n"
        "who may call and read what is said in\n[trust](../explanation/trust.md).\n\n## Tables\n",
    ]  # fmt: skip
    for name, columns in _columns(connection).items():
        rows = (row(f"`{column}`", kind, extra) for column, kind, extra in columns)
        parts.append(
            f"### {name}\n\n{said.get(name) or OTHERWISE[name]}\n\n{table('column', 'type', '', rows=rows)}"
        )
    parts.append(f"## The sequence\n\n`positions`: {said['positions']}\n")
    parts.append("## Triggers\n")
    parts.append(table("trigger", "on", "what", rows=(row(*found) for found in _triggers(connection))))
    parts.append("## Functions\n")
    rows = (row(*found) for found in _functions(connection))
    parts.append(table("function", "who may call it", "what it is for", rows=rows))
    return "\n".join(parts)


def _comments(text: str, pattern: str) -> dict[str, str]:
    """The first paragraph of the comment directly above each definition."""
    found = re.finditer(rf"((?:^--.*\n)+){pattern}", text, re.MULTILINE)
    said = {each[2]: re.split(r"^--\n", each[1], maxsplit=1, flags=re.MULTILINE)[0] for each in found}
    return {
        name: " ".join(line.lstrip("- ") for line in comment.splitlines()) for name, comment in said.items()
    }


def _columns(connection: Connection) -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    query = """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               EXISTS (SELECT FROM pg_index i
                        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey))
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'ledger'::regnamespace AND c.relkind = 'r'
           AND a.attnum > 0 AND NOT a.attisdropped
         ORDER BY c.oid, a.attnum"""
    for name, column, kind, required, key in connection.execute(query):
        found.setdefault(name, []).append(
            (column, kind, "primary key" if key else "" if required else "may be null")
        )
    return found


def _triggers(connection: Connection) -> Iterator[tuple[str, str, str]]:
    query = """SELECT tgname, tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger
                WHERE NOT tgisinternal AND tgrelid = 'ledger.events'::regclass ORDER BY 1"""
    for name, relation, definition in connection.execute(query):
        what = re.search(r"(BEFORE|AFTER) (.+?) ON ", definition)
        yield f"`{name}`", f"`{relation}`", what[0].removesuffix(" ON ") if what else ""


def _functions(connection: Connection) -> Iterator[tuple[str, str, str]]:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted((SQL / "functions").iterdir()))
    said = _comments(sources, r"CREATE OR REPLACE FUNCTION (\w+)")
    query = """
        SELECT p.proname, pg_get_function_identity_arguments(p.oid),
               ARRAY(SELECT DISTINCT x.grantee::regrole::text FROM aclexplode(p.proacl) x
                      WHERE x.grantee <> p.proowner ORDER BY 1)
          FROM pg_proc p WHERE p.pronamespace = 'ledger'::regnamespace ORDER BY 1, 2"""
    for name, arguments, callers in connection.execute(query):
        inputs = ", ".join(part for part in arguments.split(", ") if not part.startswith("OUT "))
        what = re.match(r".*?\.(?= [A-Z`]|$)", said.get(name, "")) or [OTHERWISE[name]]
        yield f"`{name}({inputs})`", ", ".join(callers) or "owner", what[0]
