-- fragment: finished_with_job
-- planner: LATERAL with LIMIT 1 forces a primary-key lookup, as in live_with_job.
holdfast.finished CROSS JOIN LATERAL (
    SELECT key, after_when, after_failed FROM holdfast.job WHERE job.id = finished.id LIMIT 1) AS job

-- fragment: insert_live_again
-- Insert the deleted jobs as live. The token continues from its old value.
-- planner: OFFSET 0 keeps one lookup per job; without it, the whole dependency table may be hashed.
INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, token, no_prefetch, kind_version, has_dependents)
SELECT deleted.id, CASE
        WHEN EXISTS (SELECT FROM holdfast.dependency WHERE dependency.job_id = deleted.id OFFSET 0)
        THEN 'waiting' ELSE 'ready' END,
    deleted.queue, deleted.kind, deleted.priority, (SELECT holdfast.now()), deleted.token,
    (SELECT on_lost <> 'retry' OR kind = 'command' OR octet_length(payload::text) > 32768
        FROM holdfast.job WHERE job.id = deleted.id),
    (SELECT kind_version FROM holdfast.job WHERE job.id = deleted.id),
    EXISTS (SELECT FROM holdfast.dependency WHERE dependency.dependency_id = deleted.id OFFSET 0)
FROM deleted RETURNING id, state

-- name: set_memory
-- Raise the memory cap in the payload of finished commands.
-- planner: count(*) = 0 is not turned into a join, so that the plan keeps the primary keys.
UPDATE holdfast.job SET payload = jsonb_set(payload::jsonb, '{memory}', to_jsonb(:memory::bigint))::json
WHERE id = ANY(:ids::bigint[]) AND kind = 'command'
    AND (SELECT count(*) FROM holdfast.live WHERE live.id = job.id) = 0
RETURNING id

-- name: set_payloads
-- Change payloads. The token rises, so that a running claim reads the new payload. Every build may try it again.
WITH changed AS (
    UPDATE holdfast.live SET token = token + 1, reader = '', refusals = NULL,
        state = CASE WHEN {unreadable} THEN {state_when_due} ELSE state END
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:changed::jsonb)::bigint)) AND state <> 'running'
    RETURNING id
)
UPDATE holdfast.job SET payload = (:changed::jsonb->job.id::text->>'payload')::json
FROM changed WHERE job.id = changed.id RETURNING job.id

-- name: retry_jobs
-- Make dead and cancelled jobs live with all their attempts. Those with dependencies wait first.
WITH deleted AS (
    DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) AND state IN ('dead', 'cancelled') RETURNING *
)
{insert_live_again}

-- name: rerun_done_jobs
-- Run done jobs again: write their columns to the history and delete progress and steps.
WITH deleted AS (
    DELETE FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) AND state || '' = 'done' RETURNING *
), recorded_attempts AS (
    INSERT INTO holdfast.attempt (job_id, token, number, worker, started_at, finished_at, reason)
    SELECT id, token, attempts, worker, started_at, finished_at, 'done' FROM deleted ON CONFLICT DO NOTHING
), recorded_events AS (
    INSERT INTO holdfast.event (job_id, at, name, actor)
    SELECT id, finished_at, 'done', 'holdfast:worker' FROM deleted ORDER BY id
), deleted_progress AS (
    DELETE FROM holdfast.progress WHERE job_id = ANY(ARRAY(SELECT id FROM deleted))
), deleted_steps AS (
    DELETE FROM holdfast.step WHERE job_id = ANY(ARRAY(SELECT id FROM deleted))
)
{insert_live_again}
