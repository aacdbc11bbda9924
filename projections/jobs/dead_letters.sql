-- Counts of dead letters. {views} is the schema of the views.

-- name: dead_counts
-- How many dead letters there are, by queue and operation.
SELECT queue, operation, CASE WHEN nr IS NULL THEN 'job' ELSE 'batch' END, count(*)
  FROM {views}.dead_letters GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
