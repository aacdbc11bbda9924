-- Statements of workers on the view of work, by name. {views} is the schema of views.

-- name: take_work
-- Take leases on work, and give back those that are over (function take_work).
SELECT * FROM {views}.take_work(%(worker)s, %(seconds)s, %(queues)s::text[], %(most)s, %(released)s::text[], %(tokens)s::bigint[]);
