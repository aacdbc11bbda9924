"""Machines on the command line: what is defined, how it looks, what went against it, what is due."""
