"""YAML files as other build tools write them, read safely: no tags, no two equal keys, dates stay texts."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from ledger.errors import BadFile

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

DEEPEST: Final = 100
"""Maximum depth of lists and mappings in each other."""
_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_DATE: Final = "tag:yaml.org,2002:timestamp"
_MERGE: Final = "tag:yaml.org,2002:merge"


class Yaml11(SafeLoader):
    """YAML 1.1, as PyYAML itself writes it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As PyYAML does. Raises a MarkedYAMLError for two equal keys, of which PyYAML keeps the last."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


class Yaml12(Yaml11):
    """YAML 1.2, as DVC writes it: `on` and `yes` are texts, `1e-05` is a number, `017` is 17."""


def _resolve(loader: Any, without: set[str], rules: dict[str, tuple[str, str]]) -> None:
    """Give a loader resolvers of its own: those inherited but for some tags, and these patterns."""
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in without]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    for tag, (pattern, first) in rules.items():
        loader.add_implicit_resolver(tag, re.compile(rf"^(?:{pattern})$"), list(first))


_resolve(Yaml11, {_DATE}, {})
_resolve(
    Yaml12,
    {_BOOL, _INT, _FLOAT},
    {
        _BOOL: ("true|True|TRUE|false|False|FALSE", "tTfF"),
        _INT: ("[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        _FLOAT: (
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            "-+0123456789.",
        ),
    },
)


def _int_of(loader: Yaml12, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


Yaml12.add_constructor(_INT, _int_of)


def read_yaml(path: Path, loader: type[Yaml11] = Yaml12) -> Any:
    """The value of a YAML file. Raises BadFile with the line where it cannot be read, OSError."""
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        _check_depth(text, loader)
        return yaml.load(text, loader)
    except UnicodeDecodeError as error:
        raise BadFile(name, f"byte {error.start}", "is no text in UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}"
        raise BadFile(name, place, f"is no YAML that can be used: {error.problem}") from error
    except yaml.YAMLError as error:  # characters that YAML does not allow
        raise BadFile(name, "", f"is no YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:  # nested too deeply; a number of too many digits
        raise BadFile(name, "", f"is no YAML that can be used: {error}") from error


def _check_depth(text: str, loader: type[Yaml11]) -> None:
    """Raise ValueError for a text that is nested too deeply: libyaml would overflow the stack."""
    depth = 0
    for event in yaml.parse(text, loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
