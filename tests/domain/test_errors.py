"""The errors: the tree in the docstring is the tree of the classes, and `ledger` has all of them."""

from __future__ import annotations

import inspect
import re

import ledger
from ledger import errors

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and kind.__module__ == errors.__name__
}


def test_the_tree_of_the_docstring_is_that_of_the_classes() -> None:
    tree, path = {}, [""]
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"([│ ├└─]*)(\w+)( |$)", line)) and found[2] in CLASSES:
            depth = len(found[1]) // 4
            path = [*path[: depth + 1], found[2]]
            tree[found[2]] = path[depth]
    assert tree == {name: CLASSES[name].__bases__[0].__name__ for name in CLASSES} | {"LedgerError": ""}


def test_every_error_is_imported_from_ledger() -> None:
    assert {name for name in CLASSES if getattr(ledger, name, None) is not CLASSES[name]} == set()
    assert set(ledger.__all__) >= CLASSES.keys()
