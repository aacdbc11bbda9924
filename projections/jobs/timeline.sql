-- The events of a job and of its batches. {schema} is the ledger's schema.

-- name: many_batches
-- Whether a job has more batches than a number.
SELECT count(*) > %(many)s::bigint
  FROM (SELECT FROM {schema}.heads h WHERE h.stream COLLATE "C" > %(start)s AND h.stream COLLATE "C" < %(end)s
         LIMIT %(many)s::bigint + 1) t;

-- name: timeline_of_streams
-- The next events of a job and of its batches, in order: reads all of them.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM {schema}.events e
 WHERE (e.stream = %(job)s OR (e.stream COLLATE "C" > %(start)s AND e.stream COLLATE "C" < %(end)s))
   AND e.position > %(after)s AND e.position <= %(upto)s
 ORDER BY e.position LIMIT %(limit)s;

-- name: timeline_of_log
-- The same from a range of the log, whose streams are checked one by one: for a job with very many events, to
-- which most of the range belongs.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM (SELECT * FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s ORDER BY position OFFSET 0) e
 WHERE e.stream = %(job)s OR (e.stream COLLATE "C" > %(start)s AND e.stream COLLATE "C" < %(end)s)
 ORDER BY e.position LIMIT %(limit)s;

-- name: newest
-- The newest events of a job and of its batches, newest first, as far as they are safe to read.
SELECT n.position, n.stream, n.version, n.topic, n.schema, n.data, n.raw, n.meta, n.recorded_at
  FROM {schema}.newest_events(%(job)s, %(start)s, %(end)s, %(after)s::bigint, %(since)s::timestamptz, %(before)s::bigint,
                              %(limit)s::integer) n;

-- name: written_after
-- The events of a job and of its batches after a position, a line each, at most two of each: whoever knows
-- the newest one learns whether it is still the newest. Also events that are not safe to read yet, so it needs no bound.
SELECT coalesce(string_agg(concat_ws(' ', e.position, (extract(epoch FROM e.recorded_at) * 1000000)::bigint, e.stream,
                                     e.version, e.topic, e.schema, e.data), chr(10)), '')
  FROM ((SELECT * FROM {schema}.events WHERE stream = %s AND position > %s ORDER BY version DESC LIMIT 2)
        UNION ALL
        (SELECT * FROM (SELECT * FROM {schema}.events WHERE stream > %s AND stream < %s OFFSET 0) b
          WHERE b.position > %s LIMIT 2)) e;

-- name: comments
-- The comments on a job, oldest first: reads the events of its stream.
SELECT e.position, e.stream, e.version, e.topic, e.schema, e.data::text, e.raw, e.meta::text, e.recorded_at
  FROM (SELECT * FROM {schema}.events j
         WHERE j.stream = %(job)s AND j.topic = ANY (%(topics)s::text[]) AND j.position > %(after)s
           AND j.position <= %(upto)s AND (%(since)s::timestamptz IS NULL OR j.recorded_at > %(since)s) OFFSET 0) e
 ORDER BY e.position LIMIT %(limit)s;
