"""Values of options of jobs: payloads and other JSON objects, spans of time."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..codes import Misuse

STDIN: Final = "-"


def payload_of(text: str | None, file: str | None, pairs: Iterable[str]) -> dict[str, Any]:
    """The payload that the options say; single fields stand above the object. Raises Misuse."""
    if text is not None and file is not None:
        raise Misuse("`--payload` and `--payload-file` exclude each other")
    if file is not None:
        text = _text_of(file)
    payload = {} if text is None else object_of(text, "the payload")
    return payload | dict(_pair(pair) for pair in pairs)


def meta_of(given: Iterable[str]) -> dict[str, Any]:
    """Metadata: JSON objects and single fields, later ones above earlier ones. Raises Misuse."""
    meta: dict[str, Any] = {}
    for text in given:
        meta |= object_of(text, "--meta") if text.lstrip().startswith("{") else dict([_pair(text)])
    return meta


def object_of(text: str, what: str) -> dict[str, Any]:
    """A JSON object. Raises Misuse for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f'{what} is no JSON: {error}; give an object such as {{"n": 1}}') from None
    if not isinstance(value, dict):
        raise Misuse(f'{what} must be a JSON object such as {{"n": 1}}, not {_kind(value)}')
    return value


def seconds_of(text: str | None, option: str) -> float | None:
    """A span in seconds: a number, or such as `90s`, `1h30m`. Raises Misuse."""
    if text is None:
        return None
    from ledger import BadInput
    from projections.audit.moments import parse_span

    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_span(text).total_seconds()
        except BadInput as error:
            raise Misuse(f"{option}: {error}") from None
    if not 0 <= seconds < float("inf"):
        raise Misuse(f"{option} {text!r} must be 0 or more")
    return seconds


def _pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE: a value that is JSON is that, any other a text."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise Misuse(f"{text!r} must be NAME=VALUE; a whole object goes behind --payload")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _text_of(file: str) -> str:
    try:
        read = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return read.decode()
    except OSError as error:
        raise Misuse(f"--payload-file {file!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Misuse(f"--payload-file {file!r} is no UTF-8") from None


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case list():
            return "a list"
        case str():
            return "a text"
        case _:
            return "a number"
