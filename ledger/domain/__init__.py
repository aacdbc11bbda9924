"""What domains are made of: events, streams, the states they fold to, the moves between statuses."""

from . import canonical_json

__all__ = ["canonical_json"]
