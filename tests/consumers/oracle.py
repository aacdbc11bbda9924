"""
When sets were complete, by the plainest fold of the log: rows of text and JSON, no code of the project.

What is folded: a dictionary of items. What is asked, before and after each append: which channels have strips
1 … N, all there, compressed and not failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Any

import psycopg

Round = tuple[int, str]
"""The position of the event that completed a set, and the set's key: `project/slice/channel`."""

ROWS = "SELECT position, stream, topic, data, recorded_at FROM ledger.events ORDER BY position"
FLAGS = ("archived", "compressed", "uploaded")
LEVELS = ("lsm.project", "lsm.slice", "lsm.channel", "lsm.strip")
Row = tuple[int, str, str, Any, datetime]


def rows(dsn: str) -> list[Row]:
    """Position, stream, topic, body and time of every event."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(ROWS).fetchall()


def expected(log: Iterable[Row], default: int | None = None) -> list[Round]:
    """The rounds that this log makes. default: strips of a channel in projects without a plan.

    An append, which is what carries one time, is looked at as a whole.
    """
    items: dict[str, dict[str, Any]] = {}
    complete: set[str] = set()
    found: list[Round] = []
    for _, append in groupby(log, key=lambda row: row[4]):
        last: dict[str, int] = {}
        for position, stream, topic, data, _ in append:
            level, _, key = stream.partition("/")
            word = topic.rpartition(".")[2]
            if level not in LEVELS:
                continue
            fold(items.setdefault(key, {"life": 0, "alive": False}), word, data)
            if level == "lsm.strip" or word in ("created", "deleted", "planned"):
                last |= dict.fromkeys([key, *touched(items, key)], position)
        for channel in [channel for channel in items if channel.count("/") == 2]:
            above = {position for key, position in last.items() if f"{channel}/".startswith(f"{key}/")}
            now = is_complete(items, channel, default) if above else channel in complete
            if now and channel not in complete:
                found.append((max(above), channel))
            (complete.add if now else complete.discard)(channel)
    return sorted(found)


def fold(item: dict[str, Any], word: str, data: dict[str, Any]) -> None:
    if word == "created":
        life = item["life"] + 1
        item.clear()
        item.update(life=life, alive=True, under=data["under"])
    elif word == "deleted":
        item["alive"] = False
    elif word in FLAGS:
        item[word] = True
    elif word == "reset":
        item.update(dict.fromkeys(data["cleared"], False))
    elif word == "planned":
        item.update(data["totals"])
    elif word in ("started", "completed", "failed", "pending"):
        item["status"] = word


def touched(items: dict[str, dict[str, Any]], key: str) -> list[str]:
    """The channels at, above or below an item."""
    parts = key.split("/")
    if len(parts) >= 3:
        return ["/".join(parts[:3])]
    return [other for other in items if other.startswith(f"{key}/") and other.count("/") == 2]


def is_complete(items: dict[str, dict[str, Any]], channel: str, default: int | None) -> bool:
    project, slice_id, _ = channel.split("/")
    total = items.get(project, {}).get("strips_per_slice") or default
    if not total or not shows(items, [project, f"{project}/{slice_id}", channel]):
        return False
    for strip_id in range(1, total + 1):
        strip = items.get(f"{channel}/{strip_id}")
        if strip is None or not strip["alive"] or strip["under"] != items[channel]["life"]:
            return False
        if not strip.get("compressed") or strip.get("status") == "failed":
            return False
    return True


def shows(items: dict[str, dict[str, Any]], path: list[str]) -> bool:
    life = None
    for key in path:
        item = items.get(key)
        if item is None or not item["alive"] or life not in (None, item["under"]):
            return False
        life = item["life"]
    return True


def recorded(log: Iterable[Row]) -> list[Round]:
    """The rounds that were recorded, in the order of the events that completed them."""
    return sorted(
        (data["position"], stream.partition("/")[2])
        for _, stream, topic, data, _ in log
        if topic == "lsm.channel.ready"
    )
