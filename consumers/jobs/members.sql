-- The set of a job, its batches and its child jobs: as of a position that was safe to read, to count it; and as it is
-- now, to cancel it.

-- name: ended_batches
-- The batches of one round of a job that were over as of a position: how they ended, and their numbers in the round. The
-- numbers of the first round have no dot; those of another begin with the round and a dot. If the job was reopened, only
-- batches count that completed before, or ended afterwards.
SELECT last.topic, array_agg(substr(last.stream, length(%(prefix)s) + 1))
  FROM (SELECT DISTINCT ON (e.stream) e.stream, e.topic
          FROM {schema}.events e
         WHERE e.stream >= %(prefix)s COLLATE "C" AND e.stream < %(prefix)s || U&'\+10FFFF' COLLATE "C"
           AND e.position <= %(upto)s
           AND e.topic IN ('batch.completed', 'batch.failed', 'batch.lease_expired', 'batch.cancelled', 'batch.redriven')
           AND (e.topic = 'batch.completed' OR e.position > (
                SELECT coalesce(max(r.position), 0) FROM {schema}.events r
                 WHERE r.stream = %(job)s AND r.topic = 'job.reopened' AND r.position <= %(upto)s))
         ORDER BY e.stream, e.version DESC) last
 WHERE last.topic <> 'batch.redriven' AND strpos(substr(last.stream, length(%(prefix)s) + 1), '.') = 0
 GROUP BY last.topic;

-- name: ended_jobs
-- Those of these jobs that were over as of a position: how they ended, and their streams.
SELECT last.topic, array_agg(last.stream)
  FROM unnest(%(streams)s::text[]) j (stream)
  CROSS JOIN LATERAL (
       SELECT e.stream, e.topic FROM {schema}.events e
        WHERE e.stream = j.stream AND e.position <= %(upto)s
          AND e.topic IN ('job.succeeded', 'job.failed', 'job.lease_expired', 'job.cancelled', 'job.redriven', 'job.reopened')
        ORDER BY e.version DESC LIMIT 1) last
 WHERE last.topic NOT IN ('job.redriven', 'job.reopened')
 GROUP BY last.topic;

-- name: failures_of
-- The error messages of the failed ones among a round's batches and these jobs, as of a position: the most frequent and
-- then the oldest first, each cut to 500 characters.
WITH lasts AS (
    SELECT DISTINCT ON (e.stream) e.stream, e.topic, e.position, e.data
      FROM {schema}.events e
     WHERE e.stream >= %(prefix)s COLLATE "C" AND e.stream < %(prefix)s || U&'\+10FFFF' COLLATE "C"
       AND e.position <= %(upto)s AND strpos(substr(e.stream, length(%(prefix)s) + 1), '.') = 0
       AND e.topic IN ('batch.failed', 'batch.lease_expired', 'batch.redriven')
     ORDER BY e.stream, e.version DESC
), jobs AS (
    SELECT last.* FROM unnest(%(streams)s::text[]) j (stream)
     CROSS JOIN LATERAL (
           SELECT e.stream, e.topic, e.position, e.data FROM {schema}.events e
            WHERE e.stream = j.stream AND e.position <= %(upto)s
              AND e.topic IN ('job.failed', 'job.lease_expired', 'job.redriven', 'job.reopened')
            ORDER BY e.version DESC LIMIT 1) last
), told AS (
    SELECT position, left(CASE WHEN topic LIKE '%%.failed' THEN coalesce(nullif(data ->> 'message', ''), data ->> 'error_code')
                               ELSE 'lease_expired' END, 500) AS message
      FROM (SELECT * FROM lasts UNION ALL SELECT * FROM jobs) l WHERE topic NOT LIKE '%%.redriven' AND topic <> 'job.reopened'
)
SELECT message FROM told GROUP BY message ORDER BY count(*) DESC, min(position) LIMIT 3;

-- name: parent_of
-- The parent that a job was submitted with; one row, if there is such a job.
SELECT data ->> 'parent' FROM {schema}.events WHERE stream = %(stream)s AND version = 1;

-- name: rounds_at
-- How many rounds a job had begun as of a position.
SELECT coalesce(max({schema}.whole_number(data, 'round')), 0)
  FROM {schema}.events WHERE stream = %(stream)s AND topic = 'job.dispatching' AND position <= %(upto)s;

-- name: open_batches
-- Batches of a job that are not over now, by name, after a name; of its rounds up to one. A head without a status counts
-- as not over.
SELECT h.stream
  FROM {schema}.heads h
 WHERE h.stream > greatest(%(prefix)s, %(after)s) COLLATE "C" AND h.stream < %(prefix)s || U&'\+10FFFF' COLLATE "C"
   AND (h.status IS NULL OR h.status IN ('queued', 'running', 'computed', 'writing'))
   AND coalesce(substring(substr(h.stream, length(%(prefix)s) + 1) FROM '^([0-9]{{1,9}})[.]')::integer, 1) <= %(rounds)s
 ORDER BY h.stream LIMIT %(limit)s;

-- name: batches_to_redrive
-- Batches of one round that last ended before a position and did not complete, by name, after a name; with the version
-- of the fact that holds the payload of each.
SELECT h.stream, p.version
  FROM {schema}.heads h
 CROSS JOIN LATERAL (
       SELECT e.topic, e.position FROM {schema}.events e
        WHERE e.stream = h.stream
          AND e.topic IN ('batch.completed', 'batch.failed', 'batch.lease_expired', 'batch.cancelled', 'batch.redriven')
        ORDER BY e.version DESC LIMIT 1) last
 CROSS JOIN LATERAL (
       SELECT e.version FROM {schema}.events e WHERE e.stream = h.stream AND e.topic IN ('batch.queued', 'batch.computed')
        ORDER BY e.version DESC LIMIT 1) p
 WHERE h.stream > greatest(%(prefix)s, %(after)s) COLLATE "C" AND h.stream < %(prefix)s || U&'\+10FFFF' COLLATE "C"
   AND (h.status IS NULL OR h.status IN ('failed', 'cancelled'))
   AND strpos(substr(h.stream, length(%(prefix)s) + 1), '.') = 0
   AND last.topic IN ('batch.failed', 'batch.lease_expired', 'batch.cancelled') AND last.position < %(before)s
 ORDER BY h.stream LIMIT %(limit)s;
