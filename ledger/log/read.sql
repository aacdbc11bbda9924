-- Reading streams, heads and the log; opening streams. {schema} is the ledger's schema.

-- name: open_head
-- Version and state of a stream as one text, where its head was folded by this code and nothing came after
-- it; 0 and no state where nothing is recorded; else null, and open_stream must be run. Opening a stream
-- usually reads only this.
SELECT coalesce(
       (SELECT h.state_version || ' ' || h.state::text FROM {schema}.heads h
         WHERE h.stream = w.stream AND h.state_schema = w.state_schema AND h.state IS NOT NULL
           AND NOT EXISTS (SELECT FROM {schema}.events WHERE stream = w.stream AND version > h.state_version)),
       CASE WHEN NOT EXISTS (SELECT FROM {schema}.heads WHERE stream = w.stream)
             AND NOT EXISTS (SELECT FROM {schema}.events WHERE stream = w.stream) THEN '0 ' END)
  FROM (SELECT %s::text AS stream, %s::integer AS state_schema) w;

-- name: open_stream
-- Head and tail of a stream in one snapshot: the state, and the events after it; all events where the state
-- was folded by other code. One row with empty event columns where there is no tail.
-- -- The tail is a lateral subquery with an order, here and below, so that only the index (stream, version)
-- is used: for a plain join the planner may read the whole stream, or the whole log where it was never
-- analysed.
SELECT h.version, h.state_version, h.status, h.token, h.state::text,
       e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM (SELECT %(stream)s::text AS stream) wanted
  LEFT JOIN LATERAL (
       SELECT version, status, token,
              CASE WHEN state_schema = %(state_schema)s THEN state_version ELSE 0 END AS state_version,
              CASE WHEN state_schema = %(state_schema)s THEN state END AS state
         FROM {schema}.heads WHERE stream = wanted.stream) h ON true
  LEFT JOIN LATERAL (
       SELECT * FROM {schema}.events WHERE stream = wanted.stream AND version > coalesce(h.state_version, 0)
        ORDER BY version) e ON true
 ORDER BY e.version;

-- name: open_stream_at
-- The same as of a version: the head's state if it is not later, and the events after it up to that version.
SELECT h.version, h.state_version, h.status, h.token, h.state::text,
       e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM (SELECT %(stream)s::text AS stream) wanted
  LEFT JOIN LATERAL (
       SELECT version, state_version, status, token, state FROM {schema}.heads
        WHERE stream = wanted.stream AND state_schema = %(state_schema)s AND state_version <= %(version)s) h ON true
  LEFT JOIN LATERAL (
       SELECT * FROM {schema}.events
        WHERE stream = wanted.stream AND version > coalesce(h.state_version, 0) AND version <= %(version)s
        ORDER BY version) e ON true
 ORDER BY e.version;

-- name: version_at
-- The last version of a stream at or before a position; 0 where it had none.
SELECT coalesce((SELECT version FROM {schema}.events WHERE stream = %(stream)s AND position <= %(position)s
                  ORDER BY version DESC LIMIT 1), 0);

-- name: states_of
-- The states of streams by their names, in one snapshot: one row per stream, with the tail (usually empty) as
-- one JSON array; where the state was folded by other code, or the head is missing, all events are the tail.
-- -- The arrays are hidden in subqueries: a planner that sees their lengths plans each time, which is half
-- the cost.
SELECT wanted.stream, coalesce(h.state_version, 0), h.state::text, e.tail::text
  FROM unnest((SELECT %(prefixes)s::text[]), (SELECT %(state_schemas)s::integer[])) wanted (stream, state_schema)
  LEFT JOIN LATERAL (
       SELECT CASE WHEN state_schema = wanted.state_schema THEN state_version ELSE 0 END AS state_version,
              CASE WHEN state_schema = wanted.state_schema THEN state END AS state
         FROM {schema}.heads WHERE stream = wanted.stream) h ON true
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_array(t.topic, t.schema, t.data::text, t.recorded_at) ORDER BY t.version) AS tail
         FROM (SELECT version, topic, schema, data, recorded_at FROM {schema}.events
                WHERE stream = wanted.stream AND version > coalesce(h.state_version, 0) ORDER BY version) t) e ON true;

-- name: states_below
-- The same for every stream that has a head and whose name starts with one of the prefixes; a prefix that
-- does not end with / is one stream's name.
SELECT h.stream, h.state_version, h.state::text, e.tail::text
  FROM unnest(%(prefixes)s::text[], %(state_schemas)s::integer[]) wanted (prefix, state_schema)
  JOIN LATERAL (
       SELECT stream,
              CASE WHEN state_schema = wanted.state_schema THEN state_version ELSE 0 END AS state_version,
              CASE WHEN state_schema = wanted.state_schema THEN state END AS state
         FROM {schema}.heads_below(wanted.prefix)) h ON true
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_array(t.topic, t.schema, t.data::text, t.recorded_at) ORDER BY t.version) AS tail
         FROM (SELECT version, topic, schema, data, recorded_at FROM {schema}.events
                WHERE stream = h.stream AND version > h.state_version ORDER BY version) t) e ON true;

-- name: states_below_at
-- The same as of a position that was safe to read: the head's state where the event that it was folded up to is
-- not later, and the events after it that are not later; else all events that are not later.
-- OFFSET 0: without it the planner copies the condition to four places, and evaluates it four times per
-- stream.
SELECT h.stream, h.state_version, h.state::text, e.tail::text
  FROM unnest(%(prefixes)s::text[], %(state_schemas)s::integer[]) wanted (prefix, state_schema)
  JOIN LATERAL (
       SELECT f.stream, CASE WHEN f.fits THEN f.state_version ELSE 0 END AS state_version,
              CASE WHEN f.fits THEN f.state END AS state
         FROM (SELECT g.*, coalesce(g.state_schema = wanted.state_schema AND %(upto)s >= (
                      SELECT position FROM {schema}.events WHERE stream = g.stream AND version = g.state_version),
                      false) AS fits
                 FROM {schema}.heads_below(wanted.prefix) g OFFSET 0) f) h ON true
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_array(t.topic, t.schema, t.data::text, t.recorded_at) ORDER BY t.version) AS tail
         FROM (SELECT version, topic, schema, data, recorded_at FROM {schema}.events
                WHERE stream = h.stream AND version > h.state_version AND position <= %(upto)s ORDER BY version) t) e ON true
 WHERE h.state IS NOT NULL OR e.tail IS NOT NULL;

-- name: has_stream
-- One row if the stream has an event.
SELECT version FROM {schema}.events WHERE stream = %(stream)s LIMIT 1;

-- name: read_stream
-- Events of one stream, by version.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE stream = %(stream)s AND version > %(after)s AND version <= %(upto)s
 ORDER BY version LIMIT %(limit)s;

-- name: read_stream_backwards
-- Events of one stream, the last first.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE stream = %(stream)s AND version > %(after)s AND version <= %(upto)s
 ORDER BY version DESC LIMIT %(limit)s;

-- name: bound
-- The position up to which the log is safe to read; run it separately, before the statement that reads.
SELECT {schema}.bound(%(known)s);

-- name: read_log
-- Events of the log after a position, up to a bound that was read before. The bound is checked outside: for a
-- range with two ends the planner expects few rows while the table was not analysed since a bulk load, and
-- sorts all.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM (SELECT * FROM {schema}.events WHERE position > %(after)s ORDER BY position LIMIT %(limit)s) page
 WHERE position <= %(bound)s
 ORDER BY position;

-- name: read_last
-- The last events of the log up to a bound, the last first: of some topics or all, of streams with a prefix.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE position <= %(bound)s AND starts_with(stream, %(prefix)s)
   AND (%(topics)s::text[] IS NULL OR topic = ANY (%(topics)s))
 ORDER BY position DESC LIMIT %(limit)s;

-- name: read_log_from
-- The event at a position, without its body, and the events after it up to a bound that was read before: one
-- statement, so that a reader that continues from there can check that it is still the same event.
SELECT position, stream, version, topic, schema, CASE WHEN position > %(position)s THEN data::text END,
       CASE WHEN position > %(position)s THEN raw END, CASE WHEN position > %(position)s THEN meta::text END, recorded_at
  FROM (SELECT * FROM {schema}.events WHERE position >= %(position)s ORDER BY position LIMIT %(limit)s) page
 WHERE position <= %(bound)s
 ORDER BY position;

-- name: events_at
-- The ledger's id with the events at some positions, without their bodies; only the id where there is none.
SELECT i.ledger, e.position, e.stream, e.version, e.topic, e.schema, NULL::text, NULL::bytea, NULL::text, e.recorded_at
  FROM {schema}.identity i LEFT JOIN {schema}.events e ON e.position = ANY (%(positions)s::bigint[]);

-- name: last_event_upto
-- The last event at or before a position, without its body.
SELECT position, stream, version, topic, schema, NULL::text, NULL::bytea, NULL::text, recorded_at
  FROM {schema}.events WHERE position <= %(position)s ORDER BY position DESC LIMIT 1;

-- name: event_at
-- One event by its position.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events WHERE position = %(position)s;

-- name: position_at
-- The last position before anything recorded after a time; the whole log where nothing was (spec: as of T). It reads the
-- log up to there: times are not in the order of positions, because clocks are set back and writers take position and
-- time one after the other, and by how much they may differ has no bound, so that no search by halves is right.
SELECT coalesce((SELECT min(position) - 1 FROM {schema}.events WHERE recorded_at > %(at)s),
                (SELECT max(position) FROM {schema}.events), 0);

-- name: head
-- The head of one stream.
SELECT stream, version, state_version, status, token, state_schema, state::text
  FROM {schema}.heads WHERE stream = %(stream)s;

-- name: streams
-- Streams whose names start with a prefix, by name, after a name; the last version of each from the events,
-- so that streams without heads are there too. A loose scan: one index probe per stream. The limit is inside,
-- because a join outside it may change the order.
WITH RECURSIVE walk AS (
    (SELECT stream FROM {schema}.events
      WHERE stream > %(after)s AND stream COLLATE "C" >= %(prefix)s AND stream COLLATE "C" < %(prefix)s || U&'\+10FFFF'
      ORDER BY stream LIMIT 1)
    UNION ALL
    SELECT (SELECT e.stream FROM {schema}.events e
             WHERE e.stream > walk.stream AND e.stream COLLATE "C" < %(prefix)s || U&'\+10FFFF'
             ORDER BY e.stream LIMIT 1)
      FROM walk WHERE walk.stream IS NOT NULL
)
SELECT walk.stream, e.version, h.status, e.position, e.recorded_at
  FROM (SELECT stream FROM walk WHERE stream IS NOT NULL LIMIT %(limit)s) walk
 CROSS JOIN LATERAL (SELECT version, position, recorded_at FROM {schema}.events
                      WHERE stream = walk.stream ORDER BY version DESC LIMIT 1) e
  LEFT JOIN {schema}.heads h ON h.stream = walk.stream AND h.version = e.version
 ORDER BY walk.stream;

-- name: recorded_with
-- The adjacent events around a position that have the same time: those of one append, which became visible
-- together.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE position > coalesce((SELECT position FROM {schema}.events WHERE position < %(position)s AND recorded_at <> %(at)s
                             ORDER BY position DESC LIMIT 1), 0)
   AND position < coalesce((SELECT position FROM {schema}.events WHERE position > %(position)s AND recorded_at <> %(at)s
                             ORDER BY position LIMIT 1), 9223372036854775807)
 ORDER BY position;

-- name: recorded_command
-- One row if a command id recorded something.
SELECT first_position, last_position FROM {schema}.commands WHERE command = %(command)s;

-- name: stream_versions
-- The last version of each of these streams, 0 where it has no event.
SELECT w.stream, coalesce((SELECT e.version FROM {schema}.events e
                            WHERE e.stream = w.stream ORDER BY e.version DESC LIMIT 1), 0)
  FROM unnest(%(streams)s::text[]) w (stream);
