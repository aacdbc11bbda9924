-- Who is in which state now: one row a stream that ever moved, written by its last move. {in_state} is its table.

-- name: tables
-- since: the time of the move that led there, at `version` of the stream and `position` of the log.
CREATE TABLE {in_state} (
    position bigint      NOT NULL,
    since    timestamptz NOT NULL,
    version  bigint      NOT NULL,
    category text        COLLATE "C" NOT NULL,
    status   text        COLLATE "C" NOT NULL,
    stream   text        COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 80);

-- name: indexes
-- Who is in a state, those first that are in it longest; and what changed lately.
CREATE INDEX ON {in_state} (category, status, since);
CREATE INDEX ON {in_state} (position);

-- name: apply
-- The last move of each stream in the batch; of two batches the later version holds, whatever their order.
INSERT INTO {in_state} AS s (position, since, version, category, status, stream)
SELECT DISTINCT ON (e.stream) e.position, e.recorded_at, e.version, split_part(e.stream, '/', 1),
       coalesce(m.status, e.data ->> m.field), e.stream
  FROM {batch} e JOIN {ledger}.moves m USING (topic)
 WHERE m.status IS NOT NULL OR e.data ->> m.field IS NOT NULL
 ORDER BY e.stream, e.version DESC
ON CONFLICT (stream) DO UPDATE
   SET position = excluded.position, since = excluded.since, version = excluded.version, status = excluded.status
 WHERE s.version < excluded.version;

-- name: forget
-- Take streams out.
DELETE FROM {in_state} WHERE stream IN {streams};

-- name: reads
-- How many are in each state; and who is in one of some states, for joins in a user's own SQL.
CREATE OR REPLACE VIEW {views}.in_state_counts AS
SELECT category, status, count(*) AS streams, min(since) AS longest FROM {in_state} GROUP BY category, status;

CREATE OR REPLACE FUNCTION {views}.streams_in(p_category text, VARIADIC p_statuses text[])
RETURNS TABLE (stream text, status text, since timestamptz, version bigint, "position" bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.stream, s.status, s.since, s.version, s.position FROM {in_state} s
     WHERE s.category = p_category AND s.status = ANY (p_statuses)
$$;
GRANT SELECT ON {views}.in_state_counts TO {reader};
GRANT EXECUTE ON FUNCTION {views}.streams_in TO {reader};
