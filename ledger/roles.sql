-- What a login may.

-- name: own_roles
-- Of these roles, in this order: whether each is there, whether the session's user is a member, and whether it may use
-- the role's rights as they are; of the role `settable` also whether it may become that role.
SELECT w.role, r.oid IS NOT NULL, coalesce(pg_has_role(current_user, r.oid, 'MEMBER'), false),
       coalesce(pg_has_role(current_user, r.oid, 'USAGE')
                AND (w.role <> %(settable)s OR pg_has_role(session_user, r.oid,
                     CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)), false),
       current_user::text
  FROM unnest(%(roles)s::text[]) WITH ORDINALITY w (role, nth) LEFT JOIN pg_roles r ON r.rolname = w.role ORDER BY w.nth;
