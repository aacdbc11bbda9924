-- Statements on batches that are ended in groups, by name.

-- name: batches_at
-- What the heads of batches say: stream, version, status, which claim was the last; that is null where the head's state
-- is behind, or was folded by other code.
SELECT h.stream, h.version, h.status,
       CASE WHEN h.state_version = h.version AND h.state_schema = %(state_schema)s THEN (h.state ->> 'attempt')::integer END
  FROM {schema}.heads h WHERE h.stream = ANY (%(streams)s::text[]);
