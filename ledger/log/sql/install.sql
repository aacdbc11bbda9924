-- Statements of the installer, by name. {schema} is the ledger's schema, {role} one of its roles.

-- name: install_lock
-- One installation at a time in a database.
SELECT pg_advisory_xact_lock(5504072929870413824);

-- name: found_schema
-- The owner of a schema, and whether it is empty; no row where it does not exist.
SELECT pg_get_userbyid(n.nspowner)::text,
       NOT EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid)
  FROM pg_namespace n WHERE n.nspname = %s;

-- name: has_ledger
-- Whether the schema holds a ledger.
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = %s AND c.relname = 'identity');

-- name: known_roles
-- Which of these roles exist, and whether this session's user is a member.
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
-- The installing user acts as owner only after SET ROLE, so that its other work cannot change the log.
GRANT {role} TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;

-- name: create_schema
-- The ledger's schema, owned by its owner role.
CREATE SCHEMA {schema} AUTHORIZATION {role};

-- name: take_schema
-- An empty schema that somebody made beforehand becomes the ledger's.
ALTER SCHEMA {schema} OWNER TO {role};

-- name: take_views_schema
-- An empty schema that somebody made beforehand becomes that of the views.
ALTER SCHEMA {views} OWNER TO {role};

-- name: take_effects_schema
-- An empty schema that somebody made beforehand becomes that of what runs in appends.
ALTER SCHEMA {effects} OWNER TO {role};

-- name: create_views_schema
-- The schema of the ledger's views, in which its projector makes and drops tables.
CREATE SCHEMA {views} AUTHORIZATION {role};

-- name: create_effects_schema
-- The schema of what runs in appends as the projector, who may not enter it.
CREATE SCHEMA {effects} AUTHORIZATION {owner};

-- name: owner_projects
-- Whether the owner is a member of the projector's role.
SELECT pg_has_role(o.oid, p.oid, 'MEMBER') FROM pg_roles o, pg_roles p WHERE o.rolname = %s AND p.rolname = %s;

-- name: let_owner_project
-- The owner may do what the projector may, and give it functions.
GRANT {projector} TO {owner};

-- name: become_projector
-- What follows belongs to the projector.
SET LOCAL ROLE {role};

-- name: open_views_schema
-- Readers look into the views; the owner writes those that appends keep.
GRANT USAGE ON SCHEMA {views} TO {reader}, {owner};

-- name: become_oneself
-- Return to the session's own role.
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
-- The identity of this ledger. Its lock class differs from those of the other ledgers of this database;
-- sharing one,
-- after a restore, would only delay readers.
INSERT INTO identity (ledger, lock_class, created_at)
SELECT %s, 1 + coalesce(max(substring(p.prosrc FROM '\d+')::bigint), 19526), clock_timestamp()
  FROM pg_class c JOIN pg_proc p ON p.pronamespace = c.relnamespace AND p.proname = 'lock_class'
 WHERE c.relname = 'identity';

-- name: applied_migrations
-- The number and name of each applied migration.
SELECT number, name FROM {schema}.migrations;

-- name: note_migration
-- This was applied, and code from this schema number on may use what it made.
INSERT INTO migrations (number, name, applied_at, oldest_code) VALUES (%s, %s, clock_timestamp(), %s);

-- name: identity
-- The identity of this ledger, its schema number, whether its sequence is behind its events, and whether
-- these come by a logical subscription.
SELECT ledger, lock_class, created_at, schema_number, last_position, max_position, standby, cache,
       EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s
                 JOIN pg_catalog.pg_class e ON e.oid = s.srrelid AND e.relname = 'events'
                 JOIN pg_catalog.pg_class p ON p.relnamespace = e.relnamespace AND p.oid = {sequence}::regclass)
  FROM {schema}.describe();

-- name: oldest_code
-- The oldest code that may use the ledger, by its schema number; where the ledger is newer than this code.
SELECT {schema}.oldest_code();
