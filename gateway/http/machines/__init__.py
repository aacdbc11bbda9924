"""Routes of state machines."""
