-- What domains declare to the ledger: what topics lead to, what is counted, the levels of pipelines.

-- name: moves
-- The status that each topic leads to, as it was declared.
SELECT topic, status, field FROM {schema}.moves ORDER BY topic;

-- name: sets
-- What is counted, as it was declared.
SELECT category, to_jsonb(s) - 'number' FROM {schema}.sets s ORDER BY category;

-- name: declare_set
-- Declare what is counted.
SELECT {schema}.declare_set(%(declared)s::jsonb);

-- name: declare_move
-- Declare the status that a topic leads to.
SELECT {schema}.declare_move(%(topic)s::text, %(status)s::text, %(field)s::text);

-- name: levels
-- The levels of pipelines, as they were declared.
SELECT category, parent, children, named, ids, flags, totals FROM {schema}.levels ORDER BY category;

-- name: level_facts
-- What the facts of items do, as it was declared.
SELECT topic, fact, flag, status FROM {schema}.level_facts ORDER BY topic;

-- name: declare_level
-- Declare a level of a pipeline, with its facts.
SELECT {schema}.declare_level(%(category)s::text, %(parent)s::text, %(children)s::text, %(named)s::boolean,
                              %(ids)s::text[], %(flags)s::text[], %(totals)s::text[], %(facts)s::text::jsonb);
