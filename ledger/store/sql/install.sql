-- Statements of the installer, by name. {schema} is the ledger's schema, {role} one of its roles.

-- name: install_lock
-- One installation at a time in a database.
SELECT pg_advisory_xact_lock(5504072929870413824);

-- name: has_schema
-- Whether the schema is there.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s);

-- name: has_ledger
-- Whether the schema holds a ledger.
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = %s AND c.relname = 'identity');

-- name: known_roles
-- Which of these roles are there, and whether this session's user is a member.
SELECT rolname, pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles WHERE rolname = ANY (%s);

-- name: is_superuser
-- Whether this session needs no membership.
SELECT rolsuper FROM pg_roles WHERE rolname = current_user;

-- name: create_role
-- A role that groups rights and cannot log in.
CREATE ROLE {role} NOLOGIN;

-- name: join_role
-- The installing user may read and append.
GRANT {role} TO CURRENT_USER;

-- name: join_role_on_demand
-- The installing user is owner only where it says SET ROLE, so that its everyday work cannot touch the log.
GRANT {role} TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;

-- name: create_schema
-- The ledger's schema, owned by its owner role.
CREATE SCHEMA {schema} AUTHORIZATION {role};

-- name: views_owner
-- Who owns the schema of views; no row where it is not there.
SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = %s;

-- name: create_views_schema
-- The schema of the ledger's views, in which its projector makes and drops tables.
CREATE SCHEMA {views} AUTHORIZATION {role};

-- name: become_projector
-- What follows belongs to the projector.
SET LOCAL ROLE {role};

-- name: open_views_schema
-- Readers look into the views; the owner writes those that appends keep.
GRANT USAGE ON SCHEMA {views} TO {reader}, {owner};

-- name: become_oneself
-- The end of acting as somebody else.
RESET ROLE;

-- name: may_make_schemas
-- Whether the owner may make schemas in this database, and whether we may let it.
SELECT has_database_privilege(%s, current_database(), 'CREATE'),
       has_database_privilege(current_user, current_database(), 'CREATE WITH GRANT OPTION');

-- name: let_make_schemas
-- The owner makes the schemas of past positions.
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO {role}', current_database()); END $$;

-- name: enter_schema
-- Everything that follows is made in this schema.
SET LOCAL search_path = {schema}, pg_temp;

-- name: become_owner
-- Everything that follows belongs to the owner.
SET LOCAL ROLE {role};

-- name: create_identity
-- Who this ledger is. Its lock class differs from those of the other ledgers of this database; sharing one,
-- after a restore, would only delay readers.
INSERT INTO identity (ledger, lock_class, created_at)
SELECT %s, 1 + coalesce(max(substring(p.prosrc FROM '\d+')::bigint), 19526), clock_timestamp()
  FROM pg_class c JOIN pg_proc p ON p.pronamespace = c.relnamespace AND p.proname = 'lock_class'
 WHERE c.relname = 'identity';

-- name: done_migrations
-- What was applied.
SELECT number FROM migrations;

-- name: note_migration
-- This was applied.
INSERT INTO migrations (number, name, applied_at) VALUES (%s, %s, clock_timestamp());
