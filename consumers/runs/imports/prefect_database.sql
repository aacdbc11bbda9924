-- What is read from a database of Prefect. {table} is a table, {column} a column of it, {order} another one.

-- name: sqlite_tables
-- The names of the tables.
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: sqlite_columns
-- The names of a table's columns and their declared types.
SELECT name, type FROM pragma_table_info({table});

-- name: sqlite_count
-- How many rows a table has.
SELECT count(*) FROM {table};

-- name: sqlite_page
-- The next rows of a table in the order of their ids.
SELECT * FROM {table} WHERE id > :after ORDER BY id LIMIT :limit;

-- name: sqlite_ids
-- The ids of all rows of a table, that of the oldest first.
SELECT id FROM {table} ORDER BY created, id;

-- name: sqlite_with
-- The rows of a table with one of some values in a column, in an order.
SELECT * FROM {table} WHERE {column} IN (SELECT value FROM json_each(:values)) ORDER BY {order}, id;

-- name: postgres_tables
-- The names of the tables.
SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false));

-- name: postgres_count
-- How many rows a table has.
SELECT count(*) FROM {table};

-- name: postgres_page
-- The next rows of a table in the order of their ids, each as JSON.
SELECT to_json(t) FROM {table} t WHERE t.id > %(after)s::uuid ORDER BY t.id LIMIT %(limit)s;

-- name: postgres_ids
-- The ids of all rows of a table, that of the oldest first.
SELECT t.id::text FROM {table} t ORDER BY t.created, t.id;

-- name: postgres_with
-- The rows of a table with one of some values in a column, in an order, each as JSON.
SELECT to_json(t) FROM {table} t WHERE t.{column} = ANY (%(values)s) ORDER BY t.{order}, t.id;
