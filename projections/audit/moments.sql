-- moments.py: {schema} is the ledger's schema, {views} that of its views.

-- name: first_recorded_after
-- The lowest position recorded after a time; null if there is none.
SELECT min(position) FROM {schema}.events WHERE recorded_at > %(at)s;
