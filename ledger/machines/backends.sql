-- Moves of one object.

-- name: last_move_to
-- The last event of a stream that led to a state, for streams of machines.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE stream = %(stream)s::text AND topic = %(topic)s::text AND data ->> 'to_state' = %(state)s::text
 ORDER BY version DESC LIMIT 1;
