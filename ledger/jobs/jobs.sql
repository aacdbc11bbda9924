-- Statuses of jobs and of their batches, from heads. {schema} is the ledger's schema.

-- name: statuses
-- The statuses of streams, from their heads.
SELECT stream, status FROM {schema}.heads WHERE stream = ANY(%(streams)s::text[]);

-- name: batch_statuses
-- How many batches of one round of a job are in each status, from their heads. prefix: what the names of the round begin
-- with; those of a first round hold no dot after it.
SELECT coalesce(h.status, ''), count(*) FROM {schema}.heads h
 WHERE h.stream >= %(prefix)s COLLATE "C" AND h.stream < %(prefix)s || U&'\+10FFFF' COLLATE "C"
   AND strpos(substr(h.stream, length(%(prefix)s) + 1), '.') = 0
 GROUP BY 1;
