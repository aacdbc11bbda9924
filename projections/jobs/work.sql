-- Work that may be claimed: the jobs and batches that are not over; {work} is their table. A row only
-- nominates: the head of the stream decides, and then the append of the claim.

-- name: tables
-- ready: it waits for a claim; delayed: not before due_at. version, position: of the fact that offered it
-- last. claimed: it was claimed and has not waited since. payload_version: of the fact that holds its
-- payload. parent: the stream of the job whose batch or child it is.
CREATE TABLE {work} (
    position        bigint      NOT NULL,
    due_at          timestamptz NOT NULL,
    version         bigint      NOT NULL,
    payload_version bigint      NOT NULL,
    priority        integer     NOT NULL,
    ready           boolean     NOT NULL,
    delayed         boolean     NOT NULL,
    claimed         boolean     NOT NULL DEFAULT false,
    stream          text        COLLATE "C" PRIMARY KEY,
    queue           text        COLLATE "C" NOT NULL,
    operation       text        COLLATE "C" NOT NULL,
    parent          text        COLLATE "C"
) WITH (fillfactor = 50);

-- Which operations each queue ever held, so that each is searched separately.
CREATE TABLE {work_lines} (
    queue     text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, operation)
);

-- Queues that were ever paused, and the limits of operations.
CREATE TABLE {work_queues} (
    version bigint  NOT NULL,
    paused  boolean NOT NULL,
    stream  text    COLLATE "C" PRIMARY KEY
);

CREATE TABLE {work_limits} (
    version     bigint  NOT NULL,
    concurrency bigint,
    rate        bigint,
    seconds     double precision NOT NULL,
    stream      text    COLLATE "C" PRIMARY KEY
);

-- name: indexes
-- The next work of each queue; the next due work; claimed work.
CREATE INDEX ON {work} (queue, operation, priority DESC, position) WHERE ready AND NOT delayed;
CREATE INDEX ON {work} (queue, operation, due_at) WHERE ready AND delayed;
CREATE INDEX ON {work} (position) WHERE NOT ready;
CREATE INDEX ON {work} (operation) WHERE claimed;

-- name: apply_births
-- Submitted jobs and dispatched batches.
WITH told AS MATERIALIZED (
    SELECT e.position, e.recorded_at, e.version, e.stream, e.data ->> 'queue' AS queue, e.data ->> 'operation' AS operation,
           (e.data ->> 'priority')::integer AS priority,
           coalesce((e.data ->> 'run_at')::timestamptz, e.recorded_at)
               + coalesce((e.data ->> 'delay_seconds')::double precision, 0) * interval '1 second' AS due_at,
           CASE WHEN e.topic = 'batch.queued' THEN 'job/' || split_part(e.stream, '/', 2)
                ELSE 'job/' || (e.data ->> 'parent') END AS parent
      FROM {batch} e WHERE e.topic IN ('job.created', 'batch.queued')
), lines AS (
    INSERT INTO {work_lines} (queue, operation) SELECT DISTINCT queue, operation FROM told
    ON CONFLICT DO NOTHING
)
INSERT INTO {work} (position, due_at, version, payload_version, priority, ready, delayed, stream, queue, operation, parent)
SELECT position, due_at, version, version, coalesce(priority, 0), true, due_at > recorded_at, stream, queue, operation, parent
  FROM told
ON CONFLICT (stream) DO NOTHING;

-- name: apply_returns
-- Batches that were cancelled, and are redriven with their job.
INSERT INTO {work} (position, due_at, version, payload_version, priority, ready, delayed, stream, queue, operation, parent)
SELECT DISTINCT ON (e.stream) e.position, e.recorded_at, e.version, (e.data ->> 'payload_version')::bigint,
       coalesce((e.data ->> 'priority')::integer, 0), true, false, e.stream, e.data ->> 'queue', e.data ->> 'operation',
       'job/' || split_part(e.stream, '/', 2)
  FROM {batch} e WHERE e.topic = 'batch.redriven' AND e.data ->> 'payload_version' IS NOT NULL
 ORDER BY e.stream, e.version DESC
ON CONFLICT (stream) DO NOTHING;

-- name: apply_steps
-- Work that enters its second step, or is redriven: another operation, in another queue.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.version, e.data ->> 'queue' AS queue, e.data ->> 'operation' AS operation,
           max(e.version) FILTER (WHERE e.topic = 'batch.computed') OVER (PARTITION BY e.stream) AS computed
      FROM {batch} e WHERE e.topic IN ('batch.computed', 'batch.redriven', 'job.redriven')
     ORDER BY e.stream, e.version DESC
), lines AS (
    INSERT INTO {work_lines} (queue, operation) SELECT DISTINCT queue, operation FROM told
    ON CONFLICT DO NOTHING
)
UPDATE {work} w
   SET queue = t.queue, operation = t.operation,
       payload_version = coalesce(t.computed, w.payload_version)
  FROM told t WHERE w.stream = t.stream AND w.version < t.version;

-- name: apply_moves
-- Whether it waits, and until when: from the last fact that contains it.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.position, e.version, e.recorded_at,
           e.topic NOT IN ('job.started', 'batch.started', 'job.failed', 'batch.failed', 'job.lease_expired', 'batch.lease_expired',
                           'job.reopened') AS ready,
           e.topic IN ('job.started', 'batch.started') AS claimed,
           e.recorded_at + coalesce((e.data ->> 'delay_seconds')::double precision, 0) * interval '1 second' AS due_at
      FROM {batch} e
     WHERE e.topic NOT IN ('job.created', 'batch.queued', 'job.succeeded', 'job.cancelled', 'job.discarded', 'batch.completed',
                           'batch.cancelled', 'batch.discarded', 'queue.paused', 'queue.resumed', 'operation.limited')
     ORDER BY e.stream, e.version DESC
)
UPDATE {work} w
   SET position = t.position, version = t.version, ready = t.ready, claimed = t.claimed, due_at = t.due_at,
       delayed = t.due_at > t.recorded_at
  FROM told t WHERE w.stream = t.stream AND w.version < t.version;

-- name: apply_ends
-- Work that is over for good, unless it was redriven later. Failed work stays, because it may be redriven.
DELETE FROM {work} w USING {batch} e
 WHERE w.stream = e.stream
   AND e.topic IN ('job.succeeded', 'job.cancelled', 'job.discarded', 'batch.completed', 'batch.cancelled', 'batch.discarded')
   AND NOT EXISTS (SELECT FROM {batch} r WHERE r.stream = e.stream AND r.topic = 'batch.redriven' AND r.version > e.version);

-- name: apply_rules
-- Which queues are paused, and what limits operations.
WITH queues AS (
    INSERT INTO {work_queues} AS q (version, paused, stream)
    SELECT DISTINCT ON (e.stream) e.version, e.topic = 'queue.paused', e.stream
      FROM {batch} e WHERE e.topic IN ('queue.paused', 'queue.resumed') ORDER BY e.stream, e.version DESC
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, paused = excluded.paused WHERE q.version < excluded.version
)
INSERT INTO {work_limits} AS l (version, concurrency, rate, seconds, stream)
SELECT DISTINCT ON (e.stream) e.version, (e.data ->> 'concurrency')::bigint, (e.data ->> 'rate')::bigint,
       (e.data ->> 'seconds')::double precision, e.stream
  FROM {batch} e WHERE e.topic = 'operation.limited' ORDER BY e.stream, e.version DESC
ON CONFLICT (stream) DO UPDATE
   SET version = excluded.version, concurrency = excluded.concurrency, rate = excluded.rate, seconds = excluded.seconds
 WHERE l.version < excluded.version;

-- name: forget
-- Remove the rows of streams.
DELETE FROM {work} WHERE stream IN {streams};

-- name: forget_rules
-- Remove the rows of queues and limits.
WITH queues AS (DELETE FROM {work_queues} WHERE stream IN {streams})
DELETE FROM {work_limits} WHERE stream IN {streams};

-- name: reads
-- The work that may be claimed now, up to p_limit rows, urgent and old work first. It only reads; the caller
-- writes the leases (claim.sql) in the same transaction, under a lock that admits one caller at a time, so
-- that limits are exact. p_queues, p_operations: only of these; null: of any. `now` is the time of the
-- nomination. A row is due at `now` unless its state has another time, because the view may be behind. bucket:
-- what the rate of its operation leaves; null without a rate.
-- One plan a session: planning it at each call takes ten times as long as running it.
CREATE OR REPLACE FUNCTION {views}.nominate_work(p_queues text[], p_operations text[], p_limit integer)
RETURNS TABLE (stream text, operation text, priority integer, "position" bigint, payload_version bigint, parent text,
               parent_status text, version bigint, state_version bigint, state_schema integer, state text, payload text,
               bucket double precision, now timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    began timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock({ledger}.lock_class()::integer, 1819566);
    began := clock_timestamp();
    RETURN QUERY
    WITH lines AS MATERIALIZED (
        SELECT w.queue, w.operation,
               coalesce(CASE WHEN l.stream IS NOT NULL THEN {views}.room_of(w.operation, began) END, p_limit) AS room,
               CASE WHEN l.rate IS NOT NULL THEN {views}.bucket_of(w.operation, began) END AS bucket
          FROM {work_lines} w LEFT JOIN {work_limits} l ON l.stream = {ledger}.stream_name('operation', w.operation)
         WHERE (p_queues IS NULL OR w.queue = ANY (p_queues))
           AND (p_operations IS NULL OR w.operation = ANY (p_operations))
           AND NOT coalesce( -- the head is never behind
               (SELECT h.status = 'paused' FROM {ledger}.heads h WHERE h.stream = {ledger}.stream_name('queue', w.queue)),
               (SELECT q.paused FROM {work_queues} q WHERE q.stream = {ledger}.stream_name('queue', w.queue)), false)
    ), nominated AS MATERIALIZED (
        SELECT n.*, l.operation, l.bucket,
               row_number() OVER (PARTITION BY l.operation ORDER BY n.priority DESC, n.position) <= l.room AS fits
          FROM lines l CROSS JOIN LATERAL (
               (SELECT w.stream, w.priority, w.position, w.payload_version, w.parent FROM {work} w
                 WHERE w.queue = l.queue AND w.operation = l.operation AND w.ready AND NOT w.delayed
                   AND EXISTS (SELECT FROM {ledger}.heads h WHERE h.stream = w.stream AND h.status IN ('queued', 'computed') OFFSET 0)
                   AND NOT EXISTS (SELECT FROM {ledger}.leases x WHERE x.stream = w.stream AND x.until > began OFFSET 0)
                 ORDER BY w.priority DESC, w.position LIMIT least(l.room, p_limit))
               UNION ALL
               (SELECT w.stream, w.priority, w.position, w.payload_version, w.parent FROM {work} w
                 WHERE w.queue = l.queue AND w.operation = l.operation AND w.ready AND w.delayed AND w.due_at <= began
                   AND EXISTS (SELECT FROM {ledger}.heads h WHERE h.stream = w.stream AND h.status IN ('queued', 'computed') OFFSET 0)
                   AND NOT EXISTS (SELECT FROM {ledger}.leases x WHERE x.stream = w.stream AND x.until > began OFFSET 0)
                 ORDER BY w.due_at LIMIT least(l.room, p_limit))) n
         WHERE l.room > 0
    ), chosen AS MATERIALIZED (
        SELECT n.* FROM nominated n WHERE n.fits ORDER BY n.priority DESC, n.position LIMIT p_limit
    )
    SELECT c.stream, c.operation, c.priority, c.position, c.payload_version, c.parent, p.status, h.version, h.state_version,
           h.state_schema, h.state::text,
           (SELECT (e.data -> 'payload')::text FROM {ledger}.events e
             WHERE e.stream = c.stream AND e.version = c.payload_version),
           c.bucket, began
      FROM chosen c JOIN {ledger}.heads h ON h.stream = c.stream
      LEFT JOIN {ledger}.heads p ON p.stream = c.parent;
END $$;

-- How many of an operation may begin now; null: no limit. Running work is counted by the leases, including
-- those whose claim is still to come, and by the heads of claimed work whose lease was lost or has run out
-- and was not reaped yet.
CREATE OR REPLACE FUNCTION {views}.room_of(p_operation text, p_now timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    rule record;
    room bigint;
BEGIN
    SELECT * INTO rule FROM {work_limits} l WHERE l.stream = {ledger}.stream_name('operation', p_operation);
    IF NOT FOUND OR rule.concurrency IS NULL AND rule.rate IS NULL THEN
        RETURN NULL;
    END IF;
    IF rule.concurrency IS NOT NULL THEN
        room := rule.concurrency - (SELECT count(*) FROM (
            SELECT x.stream FROM {ledger}.leases x LEFT JOIN {ledger}.heads h ON h.stream = x.stream
             WHERE x.operation = p_operation AND x.until > p_now
               AND (h.stream IS NULL OR h.token = x.token OR h.version < x.token)
            UNION
            SELECT w.stream FROM {work} w JOIN {ledger}.heads h ON h.stream = w.stream
             WHERE w.operation = p_operation AND w.claimed AND h.token IS NOT NULL) busy);
    END IF;
    IF rule.rate IS NOT NULL THEN
        room := least(room, floor({views}.bucket_of(p_operation, p_now))::bigint);
    END IF;
    RETURN greatest(room, 0);
END $$;

-- What the bucket of an operation's rate holds at a time; null without a rate. Its capacity is the number
-- that may begin in the rate's time, and it fills evenly. Its row holds what was left at the last take;
-- without one it is full.
CREATE OR REPLACE FUNCTION {views}.bucket_of(p_operation text, p_now timestamptz) RETURNS double precision LANGUAGE sql AS $$
    SELECT coalesce(least(l.rate, r.left_over
               + l.rate * greatest(0, extract(epoch FROM p_now - r.at)::double precision) / l.seconds), l.rate)
      FROM {work_limits} l LEFT JOIN {ledger}.rates r ON r.operation = p_operation
     WHERE l.stream = {ledger}.stream_name('operation', p_operation) AND l.rate IS NOT NULL
$$;
GRANT EXECUTE ON FUNCTION {views}.nominate_work, {views}.room_of, {views}.bucket_of TO {reader};
