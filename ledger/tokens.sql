-- Tokens of HTTP clients. {schema} is the ledger's schema.

-- name: act_as_owner
-- Tokens are added and revoked by the ledger's owner.
SET LOCAL ROLE {owner};

-- name: add
-- A new token; no row if its name was used before.
INSERT INTO {schema}.tokens (added_at, hash, name, role, added_by)
VALUES (clock_timestamp(), %(hash)s, %(name)s, %(role)s, %(by)s)
ON CONFLICT (name) DO NOTHING RETURNING name, role, added_at, added_by, revoked_at;

-- name: revoke
-- The token with a name, revoked now or before.
UPDATE {schema}.tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE name = %(name)s
RETURNING name, role, added_at, added_by, revoked_at;

-- name: all
-- All tokens, by name.
SELECT name, role, added_at, added_by, revoked_at FROM {schema}.tokens ORDER BY name;

-- name: valid
-- The token with a hash, unless it was revoked.
SELECT name, role, added_at, added_by, revoked_at FROM {schema}.tokens WHERE hash = %(hash)s AND revoked_at IS NULL;
