-- Every statement that the store sends, by name. {schema} is the ledger's schema.

-- name: append_one
-- Append one event at an exact version; the lean path. One record: a row of columns would cost another plan node.
SELECT {schema}.append_one(%s::text, %s::bigint, %s::text, %s::smallint, %s::jsonb, %b::bytea, %s::jsonb, %s::boolean,
                           %s::text, %s::text, %s::integer, %s::text, %b::bytea);

-- name: append_from
-- Append one event to a stream whose state says one of some statuses: append_one at exactly the version that the head
-- shows, as if it had been read before. For E'\x03' the status from before is put in, for E'\x02' the next number.
-- With what append_one says goes the state from before; null where the head does not show the state of all events.
-- Of a stream with no events the status is the initial one that is given, if any.
-- The order reads the head to the end first: while it is being read its page cannot be tidied, and heads would grow.
SELECT (SELECT ROW({schema}.append_one(
                       h.stream, h.version, %s::text, %s::smallint, replace(%s::text, E'\x03', h.was)::jsonb, NULL,
                       %s::jsonb, true, %s::text, replace(replace(%s::text, E'\x02', h.number), E'\x03', h.was),
                       h.state_schema), h.state)
          FROM (SELECT stream, version, state_schema, state::text AS state, to_json(state ->> 'status')::text AS was,
                       ((state ->> 'moves')::bigint + 1)::text AS number
                  FROM {schema}.heads
                 WHERE stream = w.stream AND state_schema = w.state_schema AND version = state_version
                   AND w.statuses ? (state ->> 'status')
                   AND NOT EXISTS (SELECT FROM {schema}.events e WHERE e.stream = w.stream AND e.version > heads.version)
                 UNION ALL
                SELECT w.stream, 0, w.state_schema, NULL, to_json(w.initial)::text, '1'
                 WHERE w.initial IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.heads WHERE stream = w.stream)
                   AND NOT EXISTS (SELECT FROM {schema}.events WHERE stream = w.stream)
                 ORDER BY version) h)
  FROM (SELECT %s::text AS stream, %s::integer AS state_schema, %s::jsonb AS statuses, %s::text AS initial) w;

-- name: append_many
-- Append events to one or many streams, all or nothing. One record, as above.
SELECT {schema}.append_many(%s::jsonb, %b::text[], %b::integer[], %b::integer[], %b::text[], %b::smallint[], %b::text[],
                            %b::bytea[], %b::text[], %s::jsonb, %s::text, %b::bytea);

-- name: open_head
-- Version and state of a stream as one text, where its head was folded by this code and nothing came after it; 0 and
-- no state where nothing is recorded; else null, and open_stream tells. Mostly it is all that opening a stream reads.
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
-- The tail is a lateral subquery with an order, here and below, so that it is read by (stream, version) alone:
-- as a plain join the planner may read all of a stream, or all of the log where it was never analysed.
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
-- The same as of a version: the head's state where it is not later, and the events after it that are not later.
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
-- The states of streams by their names, in one snapshot: a row a stream, with the tail, mostly none, as one JSON
-- array; where the state was folded by other code, or the head is missing, all events are the tail.
-- The arrays are hidden in subqueries: a planner that sees how long they are plans anew each time, which costs half.
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
-- The same for every stream that has a head and whose name starts with one of the prefixes; what does not end
-- with / is one stream's name.
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
-- OFFSET 0: else the question whether it fits is put in four places, and asked four times a stream.
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
-- How far the log is safe to read; a statement of its own, before the one that reads.
SELECT {schema}.bound(%(known)s);

-- name: read_log
-- Events of the log after a position, up to a bound that was asked for before. The bound is looked at outside: of a
-- range with two ends the planner expects few rows while the table was not analysed since a bulk load, and sorts all.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM (SELECT * FROM {schema}.events WHERE position > %(after)s ORDER BY position LIMIT %(limit)s) page
 WHERE position <= %(bound)s
 ORDER BY position;

-- name: event_at
-- One event by its position.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events WHERE position = %(position)s;

-- name: position_at
-- The last position before anything recorded after a time; the whole log where nothing was (spec: as of T).
SELECT coalesce((SELECT min(position) - 1 FROM {schema}.events WHERE recorded_at > %(at)s),
                (SELECT max(position) FROM {schema}.events), 0);

-- name: head
-- The head of one stream.
SELECT stream, version, state_version, status, token, state_schema, state::text
  FROM {schema}.heads WHERE stream = %(stream)s;

-- name: statuses
-- The statuses of streams, as their heads say them.
SELECT stream, status FROM {schema}.heads WHERE stream = ANY(%(streams)s::text[]);

-- name: clock
-- The time, by the clock that stamps events.
SELECT clock_timestamp();

-- name: streams
-- Streams whose names start with a prefix, by name, after a name; the last version of each from the events,
-- so that streams without heads are there too. A loose scan: one index probe a stream. The limit stands inside,
-- because a join beyond it may come in any order.
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

-- name: identity
-- Who this ledger is, how far its schema is, and whether its sequence is behind its events.
SELECT ledger, lock_class, created_at, schema_number, last_position, max_position, standby, cache FROM {schema}.describe();

-- name: open_appends
-- Transactions that hold an append open, with the position they hold readers back to, the oldest first.
SELECT l.pid, ((l.classid::bigint & 65535) << 32) | l.objid::bigint AS held_at,
       extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.backend_start))::float8 AS seconds,
       a.application_name, a.state, p.gid
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts p ON l.virtualtransaction = '-1/' || p.transaction
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint >> 16 = {schema}.lock_class()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 ORDER BY seconds DESC NULLS FIRST;

-- name: kept_position
-- Where a reader stands; no row where it never stood anywhere.
SELECT cursor FROM {schema}.readers WHERE reader = %(reader)s;

-- name: keep_position
-- Keep where a reader stands.
SELECT {schema}.keep_position(%(reader)s::text, %(cursor)s::text);

-- name: forget_position
-- Forget where a reader stands; whether it stood anywhere.
SELECT {schema}.forget_position(%(reader)s::text);

-- name: recorded_with
-- The events that stand around a position and carry one time: those of one append, none of which anybody saw
-- without the others.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE position > coalesce((SELECT position FROM {schema}.events WHERE position < %(position)s AND recorded_at <> %(at)s
                             ORDER BY position DESC LIMIT 1), 0)
   AND position < coalesce((SELECT position FROM {schema}.events WHERE position > %(position)s AND recorded_at <> %(at)s
                             ORDER BY position LIMIT 1), 9223372036854775807)
 ORDER BY position;

-- name: read_log_of
-- As read_log, of the streams whose names start with a prefix, and of some topics, null for all. The prefix is asked
-- for in a way that no index answers: by that of names each page would read all these streams, and sort them.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE position > %(after)s AND position <= %(bound)s
   AND left(stream, length(%(prefix)s::text)) = %(prefix)s::text
   AND (%(topics)s::text[] IS NULL OR topic = ANY (%(topics)s::text[]))
 ORDER BY position LIMIT %(limit)s;

-- name: first_events
-- The first event of each stream whose name starts with a prefix, in the order of the log; the prefix as above.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE version = 1 AND position > %(after)s AND position <= %(bound)s
   AND left(stream, length(%(prefix)s::text)) = %(prefix)s::text
 ORDER BY position LIMIT %(limit)s;

-- name: events_of
-- Events of some streams, stream by stream in the order given, each after a version. The limit stands inside too, so
-- that of long streams not everything is sorted for one page.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(streams)s::text[], %(afters)s::bigint[]) WITH ORDINALITY w (stream, after, nth)
 CROSS JOIN LATERAL (SELECT * FROM {schema}.events
                      WHERE stream = w.stream AND version > w.after AND position <= %(bound)s
                      ORDER BY version LIMIT %(limit)s) e
 ORDER BY w.nth, e.version LIMIT %(limit)s;

-- name: begun_streams
-- Which of these streams are there: the topic and the body of the first event of each.
SELECT stream, topic, data::text FROM {schema}.events WHERE stream = ANY (%(streams)s::text[]) AND version = 1;

-- name: recorded_command
-- One row if a command id recorded something.
SELECT first_position, last_position FROM {schema}.commands WHERE command = %(command)s;

-- name: last_event_to
-- The last event of a stream that led to a state, for streams of machines.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE stream = %(stream)s::text AND topic = %(topic)s::text AND data ->> 'to_state' = %(state)s::text
 ORDER BY version DESC LIMIT 1;

-- name: set_mark
-- A text that the transaction remembers to its end; a savepoint that is rolled back brings back the one before.
SELECT set_config(%(setting)s::text, %(value)s::text, true);

-- name: mark
-- The text that the transaction remembers.
SELECT current_setting(%(setting)s::text, true);

-- name: isolation
-- How strictly the transaction is kept apart from others.
SELECT current_setting('transaction_isolation');

-- name: versions_between
-- Events of some streams, of each those after a version and up to another; first the place of the stream among them.
SELECT w.nth - 1, e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(streams)s::text[], %(afters)s::bigint[], %(uptos)s::bigint[]) WITH ORDINALITY w (stream, after, upto, nth)
  JOIN {schema}.events e ON e.stream = w.stream AND e.version > w.after AND e.version <= w.upto
 ORDER BY w.nth, e.version;
