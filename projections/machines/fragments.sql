-- Parts of a user's statement about the objects that are in some states.

-- name: objects_held
-- Whether an object of a user's table meets a condition. Written in two ways, so that the planner can choose: from the
-- states' index to the parts of the key, or from the user's row to the name of its stream. If the view does not exist,
-- PostgreSQL's error shows the line with its name, and that line says how to make it.
(SELECT FROM (SELECT i.stream{parts} FROM
{views}.in_state /*pledger views attach in_state*/ i
               WHERE i.category = {machine} AND {held}) s
  WHERE {same} AND s.stream = ({name}) COLLATE "C")

-- name: part_as_text
-- A part of a key. Its collation is only implicit, so that the collation of the user's column, and of its index, applies.
CASE WHEN strpos(i.stream, chr(37)) = 0 THEN split_part(i.stream, '/', {nth})
     ELSE {schema}.unescaped(split_part(i.stream, '/', {nth})) END COLLATE "default"

-- name: part_as_bigint
-- A part of a key that is an integer of 64 bits; else nothing.
CASE WHEN split_part(i.stream, '/', {nth}) ~ '^(0|-?[1-9][0-9]{{0,18}})$'
     THEN CASE WHEN split_part(i.stream, '/', {nth})::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
               THEN split_part(i.stream, '/', {nth})::bigint END END

-- name: part_as_uuid
-- A part of a key that is a UUID as PostgreSQL and Python write it; else nothing.
CASE WHEN split_part(i.stream, '/', {nth}) ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$'
     THEN split_part(i.stream, '/', {nth})::uuid END

-- name: text_in_name
-- A column of text as a part of a stream's name. A doubled % does no harm in a set of characters.
CASE WHEN ({column})::text COLLATE "C" ~ U&'[%%/\0001-\001F\007F\+10FFFF]' THEN {schema}.escaped_part(({column})::text)
     ELSE ({column})::text END

-- name: plain_in_name
-- A column as a part of a stream's name, where it has nothing to escape.
({column})::text
