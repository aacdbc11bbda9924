"""Routes of jobs and of dead letters."""
