"""Processes that run operations: a fork server, the child processes of a worker's slots, and frames."""
