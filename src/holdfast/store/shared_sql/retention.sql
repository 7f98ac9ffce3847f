-- Retention: delete jobs, prune rows past their age.

-- name: delete_jobs
-- Delete all rows of jobs. Keys that are still taken stay.
WITH deleted_live AS (DELETE FROM holdfast.live WHERE id = ANY(:ids::bigint[])),
deleted_finished AS (DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[])),
deleted_attempts AS (DELETE FROM holdfast.attempt WHERE job_id = ANY(:ids::bigint[])),
deleted_events AS (DELETE FROM holdfast.event WHERE job_id = ANY(:ids::bigint[])),
deleted_steps AS (DELETE FROM holdfast.step WHERE job_id = ANY(:ids::bigint[])),
deleted_traces AS (DELETE FROM holdfast.trace WHERE job_id = ANY(:ids::bigint[])),
deleted_progress AS (DELETE FROM holdfast.progress WHERE job_id = ANY(:ids::bigint[])),
deleted_dependencies AS (DELETE FROM holdfast.dependency WHERE job_id = ANY(:ids::bigint[])),
deleted_keys AS (DELETE FROM holdfast.key WHERE job_id = ANY(:ids::bigint[])
    AND (scope = 'live' OR scope = 'period' AND expires_at <= (SELECT holdfast.now()))
    AND (SELECT count(*) FROM holdfast.live AS live WHERE live.id = previous_id) = 0)
DELETE FROM holdfast.job WHERE id = ANY(:ids::bigint[])
RETURNING id

-- name: prune_workers
-- Delete workers that were last seen before the given age.
DELETE FROM holdfast.worker WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.worker WHERE seen_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY seen_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING id

-- name: prune_decisions
-- Delete old decisions of autoscalers.
DELETE FROM holdfast.autoscaler_decision WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.autoscaler_decision WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING id

-- name: prune_memory_profiles
-- Delete memory profiles that were not updated for the given age.
DELETE FROM holdfast.memory_profile WHERE name = ANY(ARRAY(
    SELECT name FROM holdfast.memory_profile WHERE updated_at < (SELECT holdfast.now()) - :age::interval
    ORDER BY updated_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING name

-- name: prune_events
-- Delete old events. Their ids grow with time, so that only the oldest are read.
-- planner: the condition on the id keeps the walk on the primary key with any statistics.
DELETE FROM holdfast.event WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM holdfast.event WHERE id > 0 ORDER BY id LIMIT :limit::bigint) AS oldest
    WHERE at < (SELECT holdfast.now()) - :age::interval)) RETURNING id

-- name: prune_audit_entries
-- Delete old audit entries.
DELETE FROM holdfast.audit_entry WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.audit_entry WHERE at < (SELECT holdfast.now()) - :age::interval
    ORDER BY at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING id
