-- What the ledger holds of objects whose table of transitions is adopted.

-- name: moves_between
-- Events of some streams, of each those after a version and up to another; first the place of the stream among them.
SELECT w.nth - 1, e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(streams)s::text[], %(afters)s::bigint[], %(uptos)s::bigint[]) WITH ORDINALITY w (stream, after, upto, nth)
  JOIN {schema}.events e ON e.stream = w.stream AND e.version > w.after AND e.version <= w.upto
 ORDER BY w.nth, e.version;
