-- range.py: {schema} is the ledger's schema, {views} that of its views.

-- name: begin_fold
-- Prepare a transaction for reading all of a range: plans for all rows, not for the first ones; times in UTC;
-- and no JIT, which costs more than it saves.
SELECT set_config('cursor_tuple_fraction', '1', true), set_config('TimeZone', 'UTC', true),
       set_config('jit', 'off', true);

-- name: fold_events
-- The columns of events that a fold needs, for a range of streams, stream by stream.
SELECT stream, version, position, topic, schema, data::text, recorded_at
  FROM {schema}.events
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY stream, version, position;

-- name: fold_heads
-- The heads of a range of streams, by name.
SELECT stream, version, state_version, state_schema, status, state::text, token
  FROM {schema}.heads
 WHERE stream >= %(start)s::text COLLATE "C" AND stream < %(below)s::text COLLATE "C"
 ORDER BY stream;

-- name: fold_events_of
-- The same for streams by their names, from a version on.
SELECT stream, version, position, topic, schema, data::text, recorded_at
  FROM {schema}.events
 WHERE stream = ANY (%(streams)s::text[]) AND version > %(after)s
 ORDER BY stream, version, position;

-- name: fold_heads_of
-- The same for streams by their names.
SELECT stream, version, state_version, state_schema, status, state::text, token
  FROM {schema}.heads WHERE stream = ANY (%(streams)s::text[]) ORDER BY stream;
