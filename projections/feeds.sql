-- feeds.py: {schema} is the ledger's schema, {views} that of its views.

-- name: filling
-- The position of a view's live copy, whether appends keep it, and which filling of which copy that is.
SELECT c.position, v.inline, c.copy, c.refolds
  FROM {schema}.views v JOIN {schema}.view_copies c ON c.view = v.name AND c.copy = v.live
 WHERE v.name = %(view)s;

-- name: state_changes
-- The moves among the next events, each with the state before it; `last` is the last event that was read,
-- alone in its row if there is no move.
WITH page AS MATERIALIZED (
    SELECT e.position, e.stream, e.version, e.topic, e.recorded_at, coalesce(m.status, e.data ->> m.field) AS status
      FROM (SELECT * FROM {schema}.events WHERE position > %(after)s AND position <= %(upto)s
             ORDER BY position LIMIT %(limit)s) e LEFT JOIN {schema}.topic_statuses m USING (topic)
)
SELECT l.last, c.position, c.stream, c.version, c.topic, b.status, c.status, c.recorded_at
  FROM (SELECT max(position) AS last FROM page) l
  LEFT JOIN page c ON c.status IS NOT NULL AND (%(statuses)s::text[] IS NULL OR c.status = ANY (%(statuses)s))
                  AND (%(start)s::text IS NULL OR starts_with(c.stream, %(start)s))
  LEFT JOIN LATERAL (
       SELECT coalesce(m.status, p.data ->> m.field) AS status
         FROM {schema}.events p JOIN {schema}.topic_statuses m USING (topic)
        WHERE p.stream = c.stream AND p.version < c.version AND (m.status IS NOT NULL OR p.data ->> m.field IS NOT NULL)
        ORDER BY p.version DESC LIMIT 1) b ON true
 ORDER BY c.position;

-- name: progress_changes
-- The sets whose last change came after a position; those of one change are never split between pages.
SELECT category, parent, present, running, done, failed, total, percent, position, at
  FROM {views}.progress
 WHERE position > %(after)s AND (%(category)s::text IS NULL OR category = %(category)s)
 ORDER BY position FETCH FIRST %(limit)s ROWS WITH TIES;
