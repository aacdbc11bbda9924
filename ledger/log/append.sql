-- The calls of an append. {schema} is the ledger's schema. Each returns one record: a row of columns would cost another
-- plan node.

-- name: append_one
-- Append one event to a stream, in a transaction of its own; the lean path.
SELECT {schema}.append_one(%s::text, %s::bigint, %s::text, %s::smallint, %s::jsonb, %b::bytea, %s::jsonb, %s::boolean,
                           %s::text, %s::text, %s::integer, %b::text[], %s::bigint);

-- name: append_stream
-- Append events to one stream, all or nothing.
SELECT {schema}.append_stream(%s::text, %s::bigint, %b::text[], %b::smallint[], %b::text[], %b::bytea[], %b::text[],
                              %s::jsonb, %s::boolean, %s::text, %s::text, %s::integer, %s::bigint, %s::bigint, %b::text[],
                              %s::bigint, %s::text, %b::bytea);

-- name: append_from
-- Append one event by the status that a stream is in.
SELECT {schema}.append_from(%s::text, %s::integer, %s::text, %s::jsonb, %s::text, %s::smallint, %s::text, %s::jsonb);

-- name: append_many
-- Append events to one or many streams, all or nothing.
SELECT {schema}.append_many(%s::jsonb, %b::text[], %b::integer[], %b::integer[], %b::text[], %b::smallint[], %b::text[],
                            %b::bytea[], %b::text[], %s::jsonb, %s::text, %b::bytea);

-- name: append_each
-- Append events by many appends that know nothing of each other, each with an outcome of its own.
SELECT {schema}.append_each(%s::jsonb, %b::text[], %b::text[], %b::text[], %b::smallint[], %b::text[], %b::bytea[],
                            %b::text[]);

-- name: append_group
-- Append one event to each of several streams, by appends that know nothing of each other.
SELECT {schema}.append_group(%b::text[], %b::bigint[], %b::text[], %b::smallint[], %b::text[], %b::text[], %b::text[],
                             %b::text[], %b::integer[]);
