"""Runs of flows and tasks, and the records of the server that keeps them."""

from ..domain.domain import Domain

DOMAIN = Domain("runs", __name__)
