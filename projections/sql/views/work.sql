-- Work that may be claimed: the jobs and batches that are not over, {work} is their table. A row nominates; what decides
-- is the head of the stream, and then the append of the claim.

-- name: tables
-- ready: it waits for a claim; delayed: not before due_at. version, position: of the fact that offered it last.
-- claimed: somebody began it, and it did not wait since. payload_version: of the fact that holds its payload. parent: the stream of the job of which it is a batch or child.
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

-- Which operations each queue ever held: so that each is looked for by itself.
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
-- What is next in each line; what is due next; what has a claim.
CREATE INDEX ON {work} (queue, operation, priority DESC, position) WHERE ready AND NOT delayed;
CREATE INDEX ON {work} (queue, operation, due_at) WHERE ready AND delayed;
CREATE INDEX ON {work} (position) WHERE NOT ready;
CREATE INDEX ON {work} (operation) WHERE claimed;

-- name: apply_births
-- What was submitted or handed out.
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

-- name: apply_steps
-- What comes to its second step, or is redriven: another operation, in another queue.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.topic, e.version, e.data ->> 'queue' AS queue, e.data ->> 'operation' AS operation
      FROM {batch} e WHERE e.topic IN ('batch.computed', 'batch.redriven', 'job.redriven')
     ORDER BY e.stream, e.version DESC
), lines AS (
    INSERT INTO {work_lines} (queue, operation) SELECT DISTINCT queue, operation FROM told
    ON CONFLICT DO NOTHING
)
UPDATE {work} w
   SET queue = t.queue, operation = t.operation,
       payload_version = CASE WHEN t.topic = 'batch.computed' THEN t.version ELSE w.payload_version END
  FROM told t WHERE w.stream = t.stream AND w.version < t.version;

-- name: apply_moves
-- Whether it waits, and until when: as the last fact says that tells it.
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (e.stream) e.stream, e.position, e.version, e.recorded_at,
           e.topic NOT IN ('job.started', 'batch.started', 'job.failed', 'batch.failed', 'job.lease_expired', 'batch.lease_expired') AS ready,
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
-- What is over for good. What failed stays, since it may be redriven.
DELETE FROM {work} w USING {batch} e
 WHERE w.stream = e.stream
   AND e.topic IN ('job.succeeded', 'job.cancelled', 'job.discarded', 'batch.completed', 'batch.cancelled', 'batch.discarded');

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
-- Take streams out.
DELETE FROM {work} WHERE stream IN {streams};

-- name: forget_rules
-- Take queues and limits out.
WITH queues AS (DELETE FROM {work_queues} WHERE stream IN {streams})
DELETE FROM {work_limits} WHERE stream IN {streams};

-- name: reads
-- Take work for a worker: a lease on each of up to p_most pieces, the urgent and the old first. p_queues: from these, null
-- from all. p_offered: only among these streams. p_released, p_tokens: leases of this worker that are over. One caller at a
-- time, so that limits are exact. A row says that it may be claimed, unless its state says that it is not due `now`: the view
-- may be behind. token: of the claim.
CREATE OR REPLACE FUNCTION {views}.take_work(
    p_worker text, p_seconds double precision, p_queues text[], p_most integer, p_released text[], p_tokens bigint[],
    p_offered text[] DEFAULT NULL)
RETURNS TABLE (stream text, token bigint, payload_version bigint, parent text, parent_status text, version bigint,
               state_version bigint, state_schema integer, state text, payload text, now timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    began timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock({ledger}.lock_class()::integer, 1819566);
    DELETE FROM {ledger}.leases l USING unnest(p_released, p_tokens) u (stream, token)
     WHERE l.stream = u.stream AND l.token = u.token;
    IF p_most < 1 THEN
        RETURN;
    END IF;
    began := clock_timestamp();
    RETURN QUERY
    WITH lines AS MATERIALIZED (
        SELECT w.queue, w.operation, coalesce({views}.room_of(w.operation, began), p_most) AS room
          FROM {work_lines} w
         WHERE (p_queues IS NULL OR w.queue = ANY (p_queues))
           AND NOT coalesce( -- the head says it at once
               (SELECT h.status = 'paused' FROM {ledger}.heads h WHERE h.stream = {ledger}.stream_name('queue', w.queue)),
               (SELECT q.paused FROM {work_queues} q WHERE q.stream = {ledger}.stream_name('queue', w.queue)), false)
    ), nominated AS MATERIALIZED (
        SELECT n.*, l.operation, row_number() OVER (PARTITION BY l.operation ORDER BY n.priority DESC, n.position) <= l.room AS fits
          FROM lines l CROSS JOIN LATERAL (
               (SELECT w.stream, w.priority, w.position, w.payload_version, w.parent FROM {work} w
                 WHERE w.queue = l.queue AND w.operation = l.operation AND w.ready AND NOT w.delayed
                   AND (p_offered IS NULL OR w.stream = ANY (p_offered))
                   AND EXISTS (SELECT FROM {ledger}.heads h WHERE h.stream = w.stream AND h.status IN ('queued', 'computed') OFFSET 0)
                   AND NOT EXISTS (SELECT FROM {ledger}.leases x WHERE x.stream = w.stream AND x.until > began OFFSET 0)
                 ORDER BY w.priority DESC, w.position LIMIT least(l.room, p_most))
               UNION ALL
               (SELECT w.stream, w.priority, w.position, w.payload_version, w.parent FROM {work} w
                 WHERE w.queue = l.queue AND w.operation = l.operation AND w.ready AND w.delayed AND w.due_at <= began
                   AND (p_offered IS NULL OR w.stream = ANY (p_offered))
                   AND EXISTS (SELECT FROM {ledger}.heads h WHERE h.stream = w.stream AND h.status IN ('queued', 'computed') OFFSET 0)
                   AND NOT EXISTS (SELECT FROM {ledger}.leases x WHERE x.stream = w.stream AND x.until > began OFFSET 0)
                 ORDER BY w.due_at LIMIT least(l.room, p_most))) n
         WHERE l.room > 0
    ), chosen AS MATERIALIZED (
        SELECT * FROM nominated WHERE fits ORDER BY priority DESC, position LIMIT p_most
    ), taken AS (
        INSERT INTO {ledger}.leases AS x (token, taken_at, until, stream, worker, operation)
        SELECT h.version + 1, began, began + p_seconds * interval '1 second', c.stream, p_worker, c.operation
          FROM chosen c JOIN {ledger}.heads h ON h.stream = c.stream
        ON CONFLICT ON CONSTRAINT leases_pkey DO UPDATE
           SET token = excluded.token, taken_at = excluded.taken_at, until = excluded.until, worker = excluded.worker,
               operation = excluded.operation
         WHERE x.until <= began
        RETURNING x.stream, x.token, x.operation
    ), spent AS (
        INSERT INTO {ledger}.rates AS r (at, left_over, operation)
        SELECT began, greatest(0, b.bucket - t.many), t.operation
          FROM (SELECT x.operation, count(*) AS many FROM taken x GROUP BY 1) t,
               LATERAL (SELECT {views}.bucket_of(t.operation, began) AS bucket OFFSET 0) b
         WHERE b.bucket IS NOT NULL
        ON CONFLICT ON CONSTRAINT rates_pkey DO UPDATE SET at = excluded.at, left_over = excluded.left_over
    )
    SELECT t.stream, t.token, c.payload_version, c.parent, p.status, h.version, h.state_version, h.state_schema, h.state::text,
           (SELECT (e.data -> 'payload')::text FROM {ledger}.events e
             WHERE e.stream = t.stream AND e.version = c.payload_version), began
      FROM taken t JOIN chosen c ON c.stream = t.stream JOIN {ledger}.heads h ON h.stream = t.stream
      LEFT JOIN {ledger}.heads p ON p.stream = c.parent
     ORDER BY c.priority DESC, c.position;
END $$;

-- How many of an operation may begin now; null: as many as wanted. What runs is told by the leases, also by those whose
-- claim is still to come, and by the heads of what is claimed, where a lease was lost or is over and nobody looked yet.
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

-- What the bucket of an operation's rate holds at a time; null without a rate. It holds as many as may begin in the rate's
-- time, and is filled evenly. Its row says what was left when something was taken last; without one it is full.
CREATE OR REPLACE FUNCTION {views}.bucket_of(p_operation text, p_now timestamptz) RETURNS double precision LANGUAGE sql AS $$
    SELECT coalesce(least(l.rate, r.left_over
               + l.rate * greatest(0, extract(epoch FROM p_now - r.at)::double precision) / l.seconds), l.rate)
      FROM {work_limits} l LEFT JOIN {ledger}.rates r ON r.operation = p_operation
     WHERE l.stream = {ledger}.stream_name('operation', p_operation) AND l.rate IS NOT NULL
$$;
GRANT EXECUTE ON FUNCTION {views}.take_work, {views}.room_of, {views}.bucket_of TO {reader};
