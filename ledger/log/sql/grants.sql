-- The rights of the roles: the writer executes the append, and writes the positions of readers, and tracking
-- and snapshots of applications; it can write the log only through the append.
-- The reader reads; the projector owns and updates the views; the eraser is reserved for lawful erasure. Run as the
-- owner after the functions, at every installation. {schema} is the ledger's.

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader}, {eraser}, {projector};
GRANT EXECUTE ON FUNCTION {schema}.oldest_code TO {writer}, {reader}, {projector};
GRANT EXECUTE ON FUNCTION {schema}.append_one, {schema}.append_stream, {schema}.append_many, {schema}.append_each,
                          {schema}.append_group, {schema}.append_from TO {writer};
GRANT EXECUTE ON FUNCTION {schema}.describe, {schema}.acquire_scope, {schema}.open_scope, {schema}.release_scope
      TO {writer}, {reader};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}, {projector};
GRANT SELECT ON SEQUENCE {schema}.positions, {schema}.run_logs_number_seq TO {reader}, {projector}; -- dumps have them
GRANT EXECUTE ON FUNCTION {schema}.newest_events TO {reader}, {projector};
GRANT EXECUTE ON FUNCTION {schema}.bound, {schema}.describe, {schema}.heads_below, {schema}.lock_class, {schema}.mark_name,
                          {schema}.next_batch, {schema}.claimed_time, {schema}.whole_number TO {reader}, {projector};
GRANT EXECUTE ON FUNCTION {schema}.advance_copy, {schema}.last_announced TO {projector};
GRANT EXECUTE ON FUNCTION {schema}.make_as_of, {schema}.drop_as_of TO {projector};
GRANT EXECUTE ON FUNCTION {schema}.repair_heads, {schema}.hold_head, {schema}.restore_commands, {schema}.remove_commands
      TO {projector};
GRANT EXECUTE ON FUNCTION {schema}.announce TO {writer}, {projector};
GRANT EXECUTE ON FUNCTION {schema}.stream_name, {schema}.category_of, {schema}.key_of, {schema}.escaped_part,
                          {schema}.unescaped TO {reader}, {writer}, {projector};
GRANT SELECT ON {schema}.topic_statuses, {schema}.sets TO {writer};
GRANT INSERT, UPDATE, DELETE ON {schema}.views, {schema}.view_copies, {schema}.view_parked TO {projector};
GRANT EXECUTE ON FUNCTION {schema}.keep_position, {schema}.forget_position, {schema}.park_stream, {schema}.retry_parked,
                          {schema}.release_parked TO {writer};
GRANT SELECT, INSERT, UPDATE ON {schema}.tracking TO {writer};
REVOKE SELECT ON {schema}.snapshots FROM {writer}; -- of an older installation: states are the reader's to read
GRANT INSERT ON {schema}.snapshots TO {writer};
GRANT SELECT (version) ON {schema}.snapshots TO {writer}; -- which versions were kept is returned
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.leases, {schema}.workers, {schema}.rates, {schema}.elections,
                                        {schema}.run_leases TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.run_logs TO {writer};
