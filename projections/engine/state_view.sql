-- What a batch does to a table of states: {rows} is the table, {columns} its columns, {picked} their values.

-- name: take
-- Streams whose heads are at their last version in the batch get the heads' states. The events of the others
-- are returned, the first of each stream with its row before the batch; a stream that has no row and is not
-- born in the batch gets none.
WITH told AS MATERIALIZED (
    SELECT e.stream, e.version, e.topic, e.schema, e.data, e.recorded_at, min(e.position) OVER whole AS position,
           min(e.version) OVER whole AS first, max(e.version) OVER whole AS last,
           bool_or(e.version = 1 AND e.topic = ANY (%(born)s::text[])) OVER whole AS born
      FROM {batch} e WHERE split_part(e.stream, '/', 1) = ANY (%(categories)s::text[])
    WINDOW whole AS (PARTITION BY e.stream)
), taken AS (
    INSERT INTO {rows} ({columns})
    SELECT {picked}
      FROM (SELECT t.stream, t.version, t.position, h.state
              FROM told t JOIN {ledger}.heads h ON h.stream = t.stream
              JOIN unnest(%(categories)s::text[], %(marks)s::integer[]) k (category, mark)
                   ON k.category = split_part(t.stream, '/', 1) AND k.mark = h.state_schema
             WHERE t.version = t.last AND h.version = t.last AND h.state_version = t.last AND h.state IS NOT NULL
               AND (t.born OR EXISTS (SELECT FROM {rows} o WHERE o.stream = t.stream OFFSET 0))) s
     CROSS JOIN LATERAL jsonb_populate_record(NULL::{rows}, s.state) r
    ON CONFLICT (stream) DO UPDATE SET {changes}
    RETURNING stream
)
SELECT t.stream, t.version, t.position, t.topic, t.schema, t.data::text, t.recorded_at, t.born, o.state::text, o.version
  FROM told t LEFT JOIN {rows} o ON o.stream = t.stream AND t.version = t.first
 WHERE t.stream NOT IN (SELECT n.stream FROM taken n)
 ORDER BY t.stream, t.version;

-- name: write
-- States that were folded.
INSERT INTO {rows} ({columns})
SELECT {picked}
  FROM ROWS FROM (unnest(%(streams)s::text[]), unnest(%(versions)s::bigint[]), unnest(%(positions)s::bigint[]),
                  jsonb_array_elements(%(states)s::jsonb)) s (stream, version, position, state)
 CROSS JOIN LATERAL jsonb_populate_record(NULL::{rows}, s.state) r
ON CONFLICT (stream) DO UPDATE SET {changes};
