-- repair.py: {schema} is the ledger's schema, {views} that of its views.

-- name: repair_heads
-- Set heads to what their events fold to, each only if its last event is still the one that was folded.
SELECT {schema}.repair_heads(%(streams)s::text[], %(versions)s::bigint[], %(statuses)s::text[], %(with_status)s::boolean[],
                           %(states)s::text[], %(state_versions)s::bigint[], %(state_schemas)s::integer[],
                           %(with_state)s::boolean[], %(tokens)s::bigint[]);

-- name: hold_head
-- Lock one stream against appends until this transaction ends; returns whether the lock was had in time.
SELECT {schema}.hold_head(%(stream)s::text);
