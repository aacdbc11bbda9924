"""
The inputs of a stage as it is now, and their hash.

Two stages with one input hash make the same outputs, so it is the key of the run cache. It has all 64 digits
of a SHA-256: what has another 16 digits in the original decides here with all of them (spec S4-34, W4-13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from json import JSONEncoder
from typing import Any, NamedTuple

from ..domain.frozen import items_of
from ..errors import BadBody
from .stage import Dep


class OutSpec(NamedTuple):
    """An output as declared. cached: kept in the content cache. incremental: built on the former one."""

    path: str
    cached: bool = True
    incremental: bool = False


@dataclass(frozen=True)
class Declared:
    """A stage as it is declared now, with the hashes of its dependencies by path.

    code: the manifest of its code; params: by name; both plain JSON. rehashed: the dependencies whose files
    had changed by their metadata, so that they were hashed anew.
    """

    code: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    deps: Mapping[str, str] = field(default_factory=dict)
    outs: tuple[OutSpec, ...] = ()
    rehashed: frozenset[str] = frozenset()

    @cached_property
    def input_hash(self) -> str:
        """The hash of the inputs. Raises BadBody for what is not JSON."""
        return input_hash(self.code, self.params, self.deps, self.outs)


def input_hash(
    code: Mapping[str, Any], params: Mapping[str, Any], deps: Mapping[str, str], outs: Iterable[OutSpec]
) -> str:
    """SHA-256 of code, parameters, dependencies and declared outputs, in 64 hexadecimal digits.

    It does not depend on the order of dependencies, outputs or keys. Raises BadBody for what is not JSON.
    """
    specs = sorted([out[:2] for out in outs])
    try:
        text = _ENCODE({"code_manifest": code, "params": params, "deps": deps, "out_specs": specs})
    except (TypeError, ValueError, RecursionError) as error:
        raise BadBody(f"the code and the parameters of a stage must be JSON: {error}") from None
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


# Keys sorted, no white space. The canonical form of bodies would take three times as long for the same hash.
_ENCODE = JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=items_of
).encode


def consumed(deps: Mapping[str, str], outputs: Mapping[str, tuple[int, str | None] | None]) -> dict[str, Dep]:
    """The dependencies as a completion records them.

    outputs: generation and hash of each dependency that is an output, read at any time: a generation is
    recorded only where its content is the one that was consumed (W4-04).
    """
    found = {}
    for path, hash in sorted(deps.items()):
        generation, content = outputs.get(path) or (None, None)
        found[path] = Dep(hash, generation if content == hash else None)
    return found
