-- feed.py: {schema} is the ledger's schema, {views} that of its views.

-- name: make_fed
-- The temporary table of events from another source, for the length of a session.
CREATE TEMPORARY TABLE IF NOT EXISTS fed (LIKE {schema}.events);

-- name: empty_fed
-- Remove the events that were passed before.
TRUNCATE pg_temp.fed;

-- name: fill_fed
-- Insert events from another source.
COPY pg_temp.fed (position, stream, version, topic, schema, data, raw, meta, recorded_at) FROM STDIN;
