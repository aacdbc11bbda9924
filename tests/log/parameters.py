"""Names for parameters of tests."""

from __future__ import annotations


def kind_of(value: object) -> str:
    """What to call a parameter that is too long, or no text."""
    return type(value).__name__
