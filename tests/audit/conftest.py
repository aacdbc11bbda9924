"""What the tests of audits share: `pledger`, run in this process on the test's ledger."""

from __future__ import annotations

from tests.gateway.conftest import plain_environment, pledger

__all__ = ["plain_environment", "pledger"]
