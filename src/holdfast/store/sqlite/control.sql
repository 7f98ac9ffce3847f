-- What people do to jobs, on SQLite.

-- name: lock_live_jobs
SELECT id, state FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: lock_finished_jobs
SELECT id FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: request_job_control
-- The holder learns of it with its next renewal. A cancel outweighs a pause.
UPDATE holdfast_live SET requested = :requested, note = coalesce(:note, note)
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running' AND requested IS NOT :requested
    AND requested IS NOT 'cancel'
RETURNING id

-- name: withdraw_pause_request
UPDATE holdfast_live SET requested = NULL, note = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running' AND requested = 'pause'
RETURNING id

-- name: release_held_jobs
-- A person lets a held job go. With dependencies it first waits, to be judged anew. One that is out of attempts gets them
-- all again, as with a retry: no run is ever one too many.
UPDATE holdfast_live SET note = NULL,
    attempts = CASE WHEN attempts >= (SELECT max_attempts FROM holdfast_job AS job WHERE job.id = holdfast_live.id)
        THEN 0 ELSE attempts END,
    crashes = CASE WHEN crashes >= (SELECT max_crashes FROM holdfast_job AS job WHERE job.id = holdfast_live.id)
        THEN 0 ELSE crashes END,
    state = CASE
    WHEN EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.job_id = holdfast_live.id) THEN 'waiting'
    WHEN due_at > :now THEN 'scheduled' ELSE 'ready' END
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'held'
RETURNING id, state

-- name: run_retries_now
-- A job that waits for its retry runs now.
UPDATE holdfast_live SET state = 'ready', due_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'scheduled' AND attempts > 0
RETURNING id

-- name: set_priority
UPDATE holdfast_live SET priority = :priority WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id

-- name: set_memory
-- A program that was killed for its memory gets more of it. It has ended: nobody can claim it meanwhile.
UPDATE holdfast_job SET payload = json_set(payload, '$.memory', :memory)
WHERE id IN (SELECT value FROM json_each(:ids)) AND kind = 'command'
    AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = holdfast_job.id)
RETURNING id

-- name: set_queue
-- A running job counts in its queue's limit and stays there.
UPDATE holdfast_live SET queue = :queue
WHERE id IN (SELECT value FROM json_each(:ids)) AND state <> 'running' RETURNING id

-- name: set_due_time
UPDATE holdfast_live SET due_at = :due_at, state = CASE
    WHEN state IN ('held', 'waiting') THEN state
    WHEN :due_at > :now THEN 'scheduled' ELSE 'ready' END
WHERE id IN (SELECT value FROM json_each(:ids)) AND state <> 'running'
RETURNING id

-- name: lock_idle_jobs
SELECT id FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids)) AND state <> 'running' ORDER BY id

-- name: read_payloads
SELECT id, payload FROM holdfast_job WHERE id IN (SELECT value FROM json_each(:ids))

-- name: set_payloads
UPDATE holdfast_live SET token = token + 1
WHERE id IN (SELECT CAST(key AS INTEGER) FROM json_each(:changed)) AND state <> 'running';
UPDATE holdfast_job SET payload = changed.value->>'payload' FROM json_each(:changed) AS changed
WHERE holdfast_job.id = CAST(changed.key AS INTEGER) AND EXISTS (
    SELECT 1 FROM holdfast_live AS live WHERE live.id = holdfast_job.id AND live.state <> 'running')
RETURNING id

-- name: lock_unsuccessful_jobs
SELECT finished.id, finished.kind, job.key
FROM holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND finished.state IN ('dead', 'cancelled')
ORDER BY finished.id

-- name: retry_jobs
-- Back to life with all its attempts; the token goes on from where it was. With dependencies it first waits,
-- to be judged anew.
INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at, token, no_prefetch, has_dependents)
SELECT finished.id,
    CASE WHEN EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.job_id = finished.id) THEN 'waiting' ELSE 'ready' END,
    finished.queue, finished.kind, finished.priority, :now, finished.token, job.on_lost <> 'retry',
    EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.dependency_id = finished.id)
FROM holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND finished.state IN ('dead', 'cancelled')
RETURNING id, state;
DELETE FROM holdfast_finished
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('dead', 'cancelled')

-- name: lock_done_jobs
SELECT finished.id, finished.kind, job.key
FROM holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND +finished.state = 'done' AND finished.kind = :kind
ORDER BY finished.id

-- name: rerun_done_jobs
-- One that is done begins anew: what only its columns told becomes rows of its history, and what it had reached is
-- forgotten.
INSERT INTO holdfast_attempt (job_id, token, number, worker, started_at, finished_at, reason)
SELECT id, token, attempts, worker, started_at, finished_at, 'done' FROM holdfast_finished
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done'
ON CONFLICT DO NOTHING;
INSERT INTO holdfast_event (job_id, at, name, actor)
SELECT id, coalesce(started_at, finished_at), 'started', 'holdfast:worker' FROM holdfast_finished
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done';
INSERT INTO holdfast_event (job_id, at, name, actor)
SELECT id, finished_at, 'done', 'holdfast:worker' FROM holdfast_finished
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done';
DELETE FROM holdfast_progress WHERE job_id IN (
    SELECT id FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done');
DELETE FROM holdfast_step WHERE job_id IN (
    SELECT id FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done');
INSERT INTO holdfast_live (id, state, queue, kind, priority, due_at, token, no_prefetch, has_dependents)
SELECT finished.id,
    CASE WHEN EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.job_id = finished.id) THEN 'waiting' ELSE 'ready' END,
    finished.queue, finished.kind, finished.priority, :now, finished.token, job.on_lost <> 'retry',
    EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.dependency_id = finished.id)
FROM holdfast_finished AS finished JOIN holdfast_job AS job ON job.id = finished.id
WHERE finished.id IN (SELECT value FROM json_each(:ids)) AND +finished.state = 'done'
RETURNING id, state;
DELETE FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'done'

-- name: restore_keys
-- Revived jobs get their keys back.
INSERT INTO holdfast_key (kind, key, job_id, scope)
SELECT requested.value->>'kind', requested.value->>'key', requested.value->>'job_id', 'live' FROM json_each(:requested) AS requested WHERE true
ON CONFLICT (kind, key) DO UPDATE SET job_id = excluded.job_id

-- name: list_live_dependents
-- Which of these jobs a live job dependencies that is none of them.
SELECT DISTINCT dependency.dependency_id FROM holdfast_dependency AS dependency JOIN holdfast_live AS live ON live.id = dependency.job_id
WHERE dependency.dependency_id IN (SELECT value FROM json_each(:ids)) AND dependency.job_id NOT IN (SELECT value FROM json_each(:ids))

-- name: insert_events
INSERT INTO holdfast_event (job_id, at, name, actor, detail)
SELECT fact.value->>'job_id', :now, fact.value->>'name', :actor, fact.value->>'detail' FROM json_each(:events) AS fact

-- name: lock_expired_jobs
-- Ended jobs past their time, but never one that a live job dependencies.
SELECT id FROM holdfast_finished AS finished
WHERE state = :state AND finished_at < :now - :age AND NOT EXISTS (
    SELECT 1 FROM holdfast_dependency AS dependency JOIN holdfast_live AS live ON live.id = dependency.job_id
    WHERE dependency.dependency_id = finished.id)
ORDER BY finished_at, id LIMIT :limit

-- name: delete_jobs
-- All rows of these jobs. Keys that are still taken stay.
DELETE FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_attempt WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_event WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_step WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_trace WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_progress WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_dependency WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM holdfast_key
WHERE job_id IN (SELECT value FROM json_each(:ids))
    AND (scope = 'live' OR scope = 'period' AND expires_at <= :now);
DELETE FROM holdfast_job WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id

-- name: prune_keys
-- Keys whose period is over. One that a live job has stays: it is taken until the job ends.
DELETE FROM holdfast_key
WHERE (kind, key) IN (
    SELECT kind, key FROM holdfast_key
    WHERE expires_at <= :now AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = job_id)
    ORDER BY expires_at LIMIT :limit)
RETURNING key

-- name: prune_workers
DELETE FROM holdfast_worker
WHERE id IN (SELECT id FROM holdfast_worker WHERE seen_at < :now - :age ORDER BY seen_at LIMIT :limit)
RETURNING id
