-- What domains announce to the ledger: the statuses of topics, and the sets.

-- name: announce
-- Announce what domains declare; returns the topics and categories that are new.
SELECT {schema}.announce(%(parts)s::text::jsonb, %(only_new)s::boolean);

-- name: topic_statuses
-- The announced status that each topic leads to.
SELECT topic, status, field FROM {schema}.topic_statuses ORDER BY topic;
