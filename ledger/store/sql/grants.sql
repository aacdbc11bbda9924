-- Who may do what: the writer executes the append, and beside it keeps the positions of readers, and tracking and
-- snapshots of applications; it has no way to the log but the append. The reader reads, the eraser is kept for lawful erasure. Run as the owner after the functions, at every installation. {schema} is the ledger's.

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader}, {eraser};
GRANT EXECUTE ON FUNCTION {schema}.append_one, {schema}.append_many TO {writer};
GRANT EXECUTE ON FUNCTION {schema}.describe, {schema}.hold_scope, {schema}.open_scope, {schema}.release_scope
      TO {writer}, {reader};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader};
GRANT SELECT ON SEQUENCE {schema}.positions TO {reader};
GRANT EXECUTE ON FUNCTION {schema}.bound, {schema}.heads_below, {schema}.lock_class, {schema}.mark_name TO {reader};
GRANT EXECUTE ON FUNCTION {schema}.keep_position, {schema}.forget_position TO {writer};
GRANT SELECT, INSERT, UPDATE ON {schema}.tracking TO {writer};
GRANT SELECT, INSERT ON {schema}.snapshots TO {writer};
