-- Positions of named readers, and the streams that they have parked.

-- name: kept_position
-- The cursor of a reader; no row where none was stored.
SELECT cursor FROM {schema}.readers WHERE reader = %(reader)s;

-- name: keep_position
-- Store the cursor of a reader.
SELECT {schema}.keep_position(%(reader)s::text, %(cursor)s::text);

-- name: forget_position
-- Delete the position of a reader; returns whether it had one.
SELECT {schema}.forget_position(%(reader)s::text);

-- name: parked_by_readers
-- The parked streams of one reader or of all, each with the topic of the event that failed.
SELECT p.reader, p.stream, p.position, e.topic, p.error, p.tries, p.parked_at, p.again
  FROM {schema}.reader_parked p LEFT JOIN {schema}.events e ON e.position = p.position
 WHERE %(reader)s::text IS NULL OR p.reader = %(reader)s
 ORDER BY p.reader, p.position;

-- name: park_stream
-- Park a stream for a reader, from an event on.
SELECT {schema}.park_stream(%(reader)s::text, %(stream)s::text, %(position)s::bigint, %(error)s::text);

-- name: retry_parked
-- Request that a reader retries a stream, or all that it parked; returns how many.
SELECT {schema}.retry_parked(%(reader)s::text, %(stream)s::text);

-- name: release_parked
-- Release a parked stream to its reader.
SELECT {schema}.release_parked(%(reader)s::text, %(stream)s::text, %(position)s::bigint);

-- name: known_readers
-- The named readers of the log: the position of each, when it was stored, the last position of the log, and
-- how many streams are parked.
SELECT coalesce(r.reader, p.reader), coalesce(split_part(r.cursor, ':', 2)::bigint, 0), r.updated_at,
       coalesce((SELECT max(position) FROM {schema}.events), 0), coalesce(p.many, 0)
  FROM {schema}.readers r
  FULL JOIN (SELECT reader, count(*) AS many FROM {schema}.reader_parked GROUP BY reader) p ON p.reader = r.reader
 ORDER BY 1;
