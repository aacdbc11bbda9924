-- Every statement that the store sends, by name. {schema} is the ledger's schema.

-- name: append_one
-- Append one event at an exact version; the lean path. One record: a row of columns would cost another plan node.
SELECT {schema}.append_one(%s::text, %s::bigint, %s::text, %s::smallint, %s::jsonb, %b::bytea, %s::jsonb, %s::boolean,
                           %s::text, %s::text, %s::integer, %s::text, %b::bytea);

-- name: append_many
-- Append events to one or many streams, all or nothing.
SELECT outcome, first_position, recorded_at, versions, refused, found_version, found_status, found_token
  FROM {schema}.append_many(%s::jsonb, %b::text[], %b::integer[], %b::integer[], %b::text[], %b::smallint[],
                            %b::text[], %b::bytea[], %b::text[], %s::jsonb, %b, %b);

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

-- name: open_streams
-- The same for many streams at once, in one snapshot, in the order of their names.
SELECT h.version, h.state_version, h.status, h.token, h.state::text,
       e.position, wanted.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(streams)s::text[], %(state_schemas)s::integer[]) wanted (stream, state_schema)
  LEFT JOIN LATERAL (
       SELECT version, status, token,
              CASE WHEN state_schema = wanted.state_schema THEN state_version ELSE 0 END AS state_version,
              CASE WHEN state_schema = wanted.state_schema THEN state END AS state
         FROM {schema}.heads WHERE stream = wanted.stream) h ON true
  LEFT JOIN LATERAL (
       SELECT * FROM {schema}.events WHERE stream = wanted.stream AND version > coalesce(h.state_version, 0)
        ORDER BY version) e ON true
 ORDER BY wanted.stream COLLATE "C", e.version;

-- name: open_below
-- The same for every stream whose name starts with one of the prefixes; no rows where there is none. What does
-- not end with / is one stream's name: only NUL, which no text has, would sort between it and name || \x01.
SELECT h.version, h.state_version, h.status, h.token, h.state::text,
       e.position, h.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM unnest(%(prefixes)s::text[], %(state_schemas)s::integer[]) wanted (prefix, state_schema)
  JOIN LATERAL (
       SELECT stream, version, status, token,
              CASE WHEN state_schema = wanted.state_schema THEN state_version ELSE 0 END AS state_version,
              CASE WHEN state_schema = wanted.state_schema THEN state END AS state
         FROM {schema}.heads
        WHERE stream COLLATE "C" >= wanted.prefix
          AND stream COLLATE "C" < wanted.prefix
                                   || CASE WHEN wanted.prefix LIKE '%%/' THEN U&'\+10FFFF' ELSE E'\x01' END) h ON true
  LEFT JOIN LATERAL (
       SELECT * FROM {schema}.events WHERE stream = h.stream AND version > h.state_version ORDER BY version) e ON true
 ORDER BY h.stream COLLATE "C", e.version;

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
-- Events of the log after a position, up to a bound that was asked for before.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events
 WHERE position > %(after)s AND position <= %(bound)s
 ORDER BY position LIMIT %(limit)s;

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

-- name: streams
-- Streams whose names start with a prefix, by name, after a name; the last version of each from the events,
-- so that streams without heads are there too. A loose scan: one index probe a stream.
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
  FROM walk
 CROSS JOIN LATERAL (SELECT version, position, recorded_at FROM {schema}.events
                      WHERE stream = walk.stream ORDER BY version DESC LIMIT 1) e
  LEFT JOIN {schema}.heads h ON h.stream = walk.stream AND h.version = e.version
 WHERE walk.stream IS NOT NULL
 LIMIT %(limit)s;

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
