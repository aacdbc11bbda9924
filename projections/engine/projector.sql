-- projector.py: {schema} is the ledger's schema, {views} that of its views.

-- name: begin_following
-- Mark, by a lock, that this session follows a view, for as long as it lives.
SELECT pg_advisory_lock_shared({schema}.lock_class()::integer + 131072, hashtext(%(view)s));

-- name: end_following
-- Release the mark of a followed view.
SELECT pg_advisory_unlock_shared({schema}.lock_class()::integer + 131072, hashtext(%(view)s));

-- name: note_failure
-- Store why the live copy cannot be followed; cleared as soon as it is followed again.
UPDATE {schema}.view_copies c SET error = %(error)s
  FROM {schema}.views v
 WHERE v.name = %(view)s AND c.view = v.name AND c.copy = v.live AND c.error IS DISTINCT FROM %(error)s;
