-- waiting.py: {schema} is the ledger's schema.

-- name: places
-- The last event that is recorded; the event up to which all of some views contain what they want, less than 0
-- if one of them does not exist.
SELECT (SELECT coalesce(max(position), 0) FROM {schema}.events),
       min(coalesce(CASE WHEN v.inline THEN 9223372036854775807 ELSE c.position END, -1))
  FROM unnest(%(views)s::text[]) w (name)
  LEFT JOIN {schema}.views v ON v.name = w.name
  LEFT JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live;
