"""The statements of import and export, in exchange.sql."""

from __future__ import annotations

from ..log.sql import Statements

SQL = Statements(__package__, "exchange")
