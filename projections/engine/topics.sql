-- topics.py: {schema} is the ledger's schema, {views} that of its views.

-- name: unknown_topics
-- The given topics that no domain declared and no event has.
SELECT t.topic FROM unnest(%(topics)s::text[]) t (topic)
 WHERE NOT EXISTS (SELECT 1 FROM {schema}.topic_statuses m WHERE m.topic = t.topic)
   AND NOT EXISTS (SELECT 1 FROM {schema}.events e WHERE e.topic = t.topic)
 ORDER BY t.topic;
