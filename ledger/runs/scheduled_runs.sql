-- Flow runs that wait for their time, from heads: they only nominate. {schema} is the ledger's schema.

-- name: by_keys
-- The scheduled runs whose idempotency keys lie in one of some ranges of names: from, to (exclusive).
SELECT DISTINCT n.state ->> 'holder'
  FROM unnest(%(starts)s::text[], %(ends)s::text[]) u (start, "end")
  JOIN {schema}.heads n ON n.stream >= u.start AND n.stream < u."end" AND n.status = 'held'
  JOIN {schema}.heads r ON r.stream = 'flow_run/' || (n.state ->> 'holder') AND r.status = 'scheduled';

-- name: by_deployment
-- All scheduled runs of a deployment. It reads the heads of all flow runs.
SELECT substr(stream, 10) FROM {schema}.heads
 WHERE stream >= 'flow_run/' AND stream < 'flow_run0' AND status = 'scheduled'
   AND state ->> 'deployment_id' = %(deployment)s;
