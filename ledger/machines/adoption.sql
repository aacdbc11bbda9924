-- The recorded moves of objects whose transitions table is adopted.

-- name: moves_between
-- The events of some streams, each from its own version on and up to another; the first column is the stream's number.
SELECT w.nth - 1, e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(streams)s::text[], %(afters)s::bigint[], %(uptos)s::bigint[]) WITH ORDINALITY w (stream, after, upto, nth)
  JOIN {schema}.events e ON e.stream = w.stream AND e.version > w.after AND e.version <= w.upto
 ORDER BY w.nth, e.version;
