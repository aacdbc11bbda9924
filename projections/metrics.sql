-- metrics.py: {schema} is the ledger's schema, {views} that of its views.

-- name: log_newest
-- Position and time of the last event of the log.
SELECT position, recorded_at FROM {schema}.events ORDER BY position DESC LIMIT 1;
