"""YAML of other build tools: each version's own rules, and nothing that is unsafe or ambiguous."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumers.builds.yaml_text import Yaml11, read_yaml
from ledger.errors import BadFile


@pytest.mark.parametrize(
    ("text", "in_12", "in_11"),
    [
        ("on", "on", True), ("yes", "yes", True), ("true", True, True), ("1e-05", 1e-05, "1e-05"),
        ("1.0e-05", 1e-05, 1e-05), ("017", 17, 15), ("0o17", 15, "0o17"), ("0x1f", 31, 31),
        ("1:30", "1:30", 90),
        ("-3", -3, -3), ("1_000", "1_000", 1000), (".inf", float("inf"), float("inf")), ("null", None, None),
        ("2020-01-01", "2020-01-01", "2020-01-01"), ("12e03", 12e03, "12e03"), ("1.5.2", "1.5.2", "1.5.2"),
        ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}},
         {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)  # fmt: skip
def test_each_version_has_its_own_rules(tmp_path: Path, text: str, in_12: Any, in_11: Any) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text, encoding="utf-8")
    assert (read_yaml(file), read_yaml(file, Yaml11)) == (in_12, in_11)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"a: 1\na: 2\n", "line 2: is no YAML that can be used: the key 'a' is there twice"),
        (b"a: [1\n", "line 2: is no YAML that can be used: "),
        (b"<<<<<<< HEAD\na: 1\n=======\n", "line 2: is no YAML that can be used: "),
        (b"!!python/object/apply:os.system [x]", "line 1: is no YAML that can be used: could not determine"),
        (b"\xff\xfe\x00", "byte 0: is no text in UTF-8"),
        (b"a: \x01", "is no YAML: "),
        (b"[" * 100_000, "is no YAML that can be used: "),
        (b"9" * 10_000, "is no YAML that can be used: "),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, data: bytes, wrong: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(data)
    with pytest.raises(BadFile) as caught:
        read_yaml(file)
    assert str(caught.value).startswith(f"{file}")
    assert wrong in str(caught.value)
