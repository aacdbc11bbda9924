"""Fixtures of the tests of views."""

from __future__ import annotations

from projections import shipped
from tests.log.conftest import only

__all__ = ["only"]

shipped.load()  # so that each test module finds the shipped views by name, whichever is imported first
