-- fragment: finished_with_job
-- A finished job and its request.
holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id

-- fragment: these_done_jobs
-- The done ones among :ids.
id IN (SELECT value FROM json_each(:ids)) AND +state = 'done'

-- fragment: insert_live_again
-- Insert finished jobs as live. The token continues from its old value.
INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at, token, no_prefetch, kind_version, has_dependents)
SELECT finished.id, CASE
        WHEN EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.job_id = finished.id)
        THEN 'waiting' ELSE 'ready' END,
    finished.queue, finished.kind, finished.priority, :now, finished.token,
    job.on_lost <> 'retry' OR job.kind = 'command' OR length(job.payload) > 32768, job.kind_version,
    EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.dependency_id = finished.id)
FROM {finished_with_job}

-- name: set_memory
-- Raise the memory cap in the payload of finished commands.
UPDATE holdfast_job SET payload = json_set(payload, '$.memory', :memory)
WHERE id IN (SELECT value FROM json_each(:ids)) AND kind = 'command'
    AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = holdfast_job.id)
RETURNING id

-- name: set_payloads
-- Change payloads. The token rises, so that a running claim reads the new payload. Every build may try it again.
UPDATE holdfast_live SET token = token + 1, reader = '', refusals = NULL,
    state = CASE WHEN {unreadable} THEN {state_when_due} ELSE state END
WHERE id IN (SELECT CAST(key AS INTEGER) FROM json_each(:changed)) AND state <> 'running';
UPDATE holdfast_job SET payload = changed.value->>'payload' FROM json_each(:changed) AS changed
WHERE holdfast_job.id = CAST(changed.key AS INTEGER) AND EXISTS (
    SELECT 1 FROM holdfast_live AS live WHERE live.id = holdfast_job.id AND live.state <> 'running')
RETURNING id

-- name: retry_jobs
-- Make dead and cancelled jobs live with all their attempts. Those with dependencies wait first.
{insert_live_again}
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND finished.state IN ('dead', 'cancelled')
RETURNING id, state;
DELETE FROM holdfast_finished
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('dead', 'cancelled')

-- name: rerun_done_jobs
-- Run done jobs again: write their columns to the history and delete progress and steps.
-- planner: +state hides the state, so that the plan keeps the primary key.
INSERT INTO holdfast_attempt (job_id, token, number, worker, started_at, finished_at, reason)
SELECT id, token, attempts, worker, started_at, finished_at, 'done' FROM holdfast_finished
WHERE {these_done_jobs}
ON CONFLICT DO NOTHING;
INSERT INTO holdfast_event (job_id, at, name, actor)
SELECT id, finished_at, 'done', 'holdfast:worker' FROM holdfast_finished WHERE {these_done_jobs};
DELETE FROM holdfast_progress WHERE job_id IN (SELECT id FROM holdfast_finished WHERE {these_done_jobs});
DELETE FROM holdfast_step WHERE job_id IN (SELECT id FROM holdfast_finished WHERE {these_done_jobs});
{insert_live_again}
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND +finished.state = 'done' RETURNING id, state;
DELETE FROM holdfast_finished WHERE {these_done_jobs}
