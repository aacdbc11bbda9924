-- What import and export read beside the log itself.

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

-- name: import_pieces
-- The pieces of imported files that begin in one place (ledger/exchange/pieces.py), in the order of the log: all of
-- them, or, of the beginnings of files, those that hold what this file holds, or are of its name. named: only the latter.
SELECT command, first_position, last_position
  FROM {schema}.commands
 WHERE command >= %(least)s::text AND command < %(beyond)s::text
   AND (split_part(command, '/', 6) = %(file)s::text
        OR NOT %(named)s::boolean
           AND (%(afters)s::text[] IS NULL OR split_part(command, '/', 4) = ANY (%(afters)s::text[])))
 ORDER BY first_position;

-- name: hold_import
-- Let no other import record anything in one place of a file until the transaction ends.
SELECT pg_advisory_xact_lock({schema}.lock_class()::integer, hashtext(%(place)s::text));

-- name: events_between
-- The events at some positions.
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM {schema}.events WHERE position BETWEEN %(first)s::bigint AND %(last)s::bigint ORDER BY position;

-- name: events_of_commands
-- The first event of each of these command ids, behind the id.
SELECT c.command, e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.commands c JOIN {schema}.events e ON e.position = c.first_position
 WHERE c.command = ANY (%(commands)s::text[]);
