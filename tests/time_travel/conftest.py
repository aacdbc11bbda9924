"""Fixtures of the tests of time travel."""

from __future__ import annotations

from tests.gateway.conftest import plain_environment, pledger
from tests.log.conftest import only

__all__ = ["only", "plain_environment", "pledger"]
