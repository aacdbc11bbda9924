-- Rows of the tables of views, in pages. {table} is the table as readers see it.

-- name: columns
-- The columns of a table; none if it does not exist.
SELECT a.attname::text FROM pg_attribute a
 WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped;

-- name: page
-- The next rows, each as JSON; rows of one position are never split between pages.
SELECT r.position, to_jsonb(r)::text FROM {table} r WHERE {conditions}
 ORDER BY r.position FETCH FIRST %(limit)s ROWS WITH TIES

-- name: after_where
-- After a position.
r.position > %(after)s

-- name: equal_where
-- A column has a value, compared as text.
r.{column}::text = {value}
