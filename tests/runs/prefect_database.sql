-- The tables of Prefect 3.8 that an import reads, as its server declares their columns in SQLite.

CREATE TABLE flow (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, tags JSON, labels JSON
);
CREATE TABLE flow_run (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, state_type VARCHAR(9),
    run_count INTEGER, expected_start_time DATETIME, next_scheduled_start_time DATETIME,
    start_time DATETIME, end_time DATETIME, total_run_time DATETIME, flow_version VARCHAR, parameters JSON,
    idempotency_key VARCHAR, context JSON, empirical_policy JSON, tags JSON, auto_scheduled BOOLEAN,
    flow_id CHAR(36), deployment_id CHAR(36), parent_task_run_id CHAR(36), state_id CHAR(36),
    state_name VARCHAR, infrastructure_document_id CHAR(36), work_queue_name VARCHAR,
    state_timestamp DATETIME, created_by JSON, infrastructure_pid VARCHAR, work_queue_id CHAR(36),
    job_variables JSON, deployment_version VARCHAR, labels JSON
);
CREATE TABLE flow_run_state (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, type VARCHAR(9), timestamp DATETIME,
    name VARCHAR, message VARCHAR, state_details JSON, data JSON, flow_run_id CHAR(36),
    result_artifact_id CHAR(36)
);
CREATE TABLE flow_run_input (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, key VARCHAR, value TEXT,
    flow_run_id CHAR(36), sender VARCHAR
);
CREATE TABLE task_run (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, state_type VARCHAR(9),
    run_count INTEGER, expected_start_time DATETIME, next_scheduled_start_time DATETIME,
    start_time DATETIME, end_time DATETIME, total_run_time DATETIME, task_key VARCHAR, dynamic_key VARCHAR,
    cache_key VARCHAR, cache_expiration DATETIME, task_version VARCHAR, empirical_policy JSON,
    task_inputs JSON, tags JSON, flow_run_id CHAR(36), state_id CHAR(36), state_name VARCHAR,
    state_timestamp DATETIME, flow_run_run_count INTEGER, labels JSON
);
CREATE TABLE task_run_state (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, type VARCHAR(9), timestamp DATETIME,
    name VARCHAR, message VARCHAR, state_details JSON, data JSON, task_run_id CHAR(36),
    result_artifact_id CHAR(36)
);
CREATE TABLE artifact (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, key VARCHAR, type VARCHAR, data JSON,
    metadata_ JSON, task_run_id CHAR(36), flow_run_id CHAR(36), description VARCHAR
);
CREATE TABLE deployment (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, tags JSON, parameters JSON,
    flow_id CHAR(36), description TEXT, infrastructure_document_id CHAR(36), parameter_openapi_schema JSON,
    storage_document_id CHAR(36), version VARCHAR, infra_overrides JSON, path VARCHAR, entrypoint VARCHAR,
    work_queue_name VARCHAR, created_by JSON, updated_by JSON, work_queue_id CHAR(36), pull_steps JSON,
    enforce_parameter_schema BOOLEAN, last_polled DATETIME, paused BOOLEAN, status VARCHAR(9),
    concurrency_limit INTEGER, concurrency_options JSON, concurrency_limit_id CHAR(36), labels JSON,
    version_id CHAR(36)
);
CREATE TABLE deployment_schedule (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, schedule JSON, active BOOLEAN,
    deployment_id CHAR(36), max_scheduled_runs INTEGER, parameters JSON, slug VARCHAR
);
CREATE TABLE work_pool (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, description VARCHAR,
    type VARCHAR, base_job_template JSON, is_paused BOOLEAN, concurrency_limit INTEGER,
    default_queue_id CHAR(36), status VARCHAR(9), last_transitioned_status_at DATETIME,
    last_status_event_id CHAR(36), storage_configuration JSON
);
CREATE TABLE work_queue (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, filter JSON,
    description VARCHAR, is_paused BOOLEAN, concurrency_limit INTEGER, last_polled DATETIME,
    priority INTEGER, work_pool_id CHAR(36), status VARCHAR(9)
);
CREATE TABLE worker (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, last_heartbeat_time DATETIME,
    work_pool_id CHAR(36), heartbeat_interval_seconds INTEGER, status VARCHAR(7)
);
CREATE TABLE variable (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, tags JSON, value JSON
);
CREATE TABLE log (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, level SMALLINT,
    flow_run_id CHAR(36), task_run_id CHAR(36), message TEXT, timestamp DATETIME
);
CREATE TABLE configuration (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, key VARCHAR, value JSON
);
CREATE TABLE block_type (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, logo_url VARCHAR,
    documentation_url VARCHAR, description VARCHAR, code_example VARCHAR, is_protected BOOLEAN, slug VARCHAR
);
CREATE TABLE block_schema (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, fields JSON, block_type_id CHAR(36),
    checksum VARCHAR, capabilities JSON, version VARCHAR
);
CREATE TABLE block_schema_reference (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR,
    parent_block_schema_id CHAR(36), reference_block_schema_id CHAR(36)
);
CREATE TABLE block_document (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, data JSON,
    block_schema_id CHAR(36), block_type_id CHAR(36), is_anonymous BOOLEAN, block_type_name VARCHAR
);
CREATE TABLE block_document_reference (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR,
    parent_block_document_id CHAR(36), reference_block_document_id CHAR(36)
);
CREATE TABLE concurrency_limit (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, tag VARCHAR, concurrency_limit INTEGER,
    active_slots JSON
);
CREATE TABLE concurrency_limit_v2 (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, active BOOLEAN, name VARCHAR,
    "limit" INTEGER, active_slots INTEGER, denied_slots INTEGER, slot_decay_per_second FLOAT,
    avg_slot_occupancy_seconds FLOAT
);
CREATE TABLE automation (
    name VARCHAR, description VARCHAR, enabled BOOLEAN, trigger JSON, actions JSON, actions_on_trigger JSON,
    actions_on_resolve JSON, id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, tags JSON
);
CREATE TABLE saved_search (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, name VARCHAR, filters JSON
);
CREATE TABLE events (
    occurred DATETIME, event TEXT, resource_id TEXT, resource JSON, related_resource_ids JSON, related JSON,
    payload JSON, received DATETIME, recorded DATETIME, follows CHAR(36), id CHAR(36) PRIMARY KEY,
    created DATETIME, updated DATETIME
);
CREATE TABLE task_run_state_cache (
    id CHAR(36) PRIMARY KEY, created DATETIME, updated DATETIME, cache_key VARCHAR,
    cache_expiration DATETIME, task_run_state_id CHAR(36)
);
