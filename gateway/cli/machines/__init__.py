"""Machines on the command line: list, show, draw, check, adopt, and move what is due."""
