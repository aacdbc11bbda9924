"""Runs of flows and tasks, and the records of the server that keeps them."""

from ..domain.domain import Domain
from .limit import OpenLimit

DOMAIN = Domain("runs", __name__)

__all__ = ["OpenLimit"]
