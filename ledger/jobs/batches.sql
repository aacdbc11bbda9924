-- Batches that are ended in groups. {schema} is the ledger's schema.

-- name: batches_at
-- The heads of batches: stream, version, status, number of the last claim; the last is null where the head's state is
-- behind, or was folded by other code.
SELECT h.stream, h.version, h.status,
       CASE WHEN h.state_version = h.version AND h.state_schema = %(state_schema)s THEN CASE WHEN h.state ->> 'attempt' ~ '^[0-9]{{1,9}}$' THEN (h.state ->> 'attempt')::integer END END
  FROM {schema}.heads h WHERE h.stream = ANY (%(streams)s::text[]);
