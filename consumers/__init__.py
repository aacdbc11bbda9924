"""Consumers: what acts on the log. Reactors, workers and the relay come with their domains."""
