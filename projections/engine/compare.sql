-- compare.py: {schema} is the ledger's schema, {views} that of its views.

-- name: only_one_has
-- Rows that one copy has and the other has not, some of them, with how many there are.
SELECT to_jsonb(d)::text, count(*) OVER ()
  FROM (SELECT {columns} FROM {here} EXCEPT ALL SELECT {columns} FROM {there}) d
 ORDER BY d::text COLLATE "C" LIMIT %(shown)s;
