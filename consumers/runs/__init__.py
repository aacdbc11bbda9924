"""The services of runs."""
