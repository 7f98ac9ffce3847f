-- Dependencies on SQLite.

-- name: find_jobs_by_label
SELECT id FROM holdfast_job WHERE label = :label ORDER BY id

-- name: find_jobs_by_label_pattern
SELECT id FROM holdfast_job WHERE label IS NOT NULL AND label GLOB :label ORDER BY id

-- name: find_job_by_key
SELECT job_id FROM holdfast_key WHERE kind = :kind AND key = :key

-- name: mark_dependencies
UPDATE holdfast_live SET has_dependents = 1 WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id

-- name: list_job_states
SELECT id, state FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, state FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids))

-- name: insert_dependencies
INSERT INTO holdfast_dependency (job_id, dependency_id)
SELECT dependency.value->>'job_id', dependency.value->>'dependency_id' FROM json_each(:dependencies) AS dependency

-- name: list_dependents
SELECT DISTINCT job_id FROM holdfast_dependency WHERE dependency_id IN (SELECT value FROM json_each(:ids)) ORDER BY job_id

-- name: list_waiting_jobs
SELECT id FROM holdfast_live WHERE state = 'waiting' AND id > :after ORDER BY id LIMIT :limit

-- name: lock_waiting_jobs
SELECT live.id, job.after_when, job.after_failed
FROM holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id
WHERE live.id IN (SELECT value FROM json_each(:ids)) AND live.state = 'waiting'
ORDER BY live.id

-- name: list_dependency_states
SELECT dependency.job_id, dependency.dependency_id, coalesce(live.state, finished.state) AS state
FROM holdfast_dependency AS dependency
LEFT JOIN holdfast_live AS live ON live.id = dependency.dependency_id
LEFT JOIN holdfast_finished AS finished ON finished.id = dependency.dependency_id
WHERE dependency.job_id IN (SELECT value FROM json_each(:ids))
ORDER BY dependency.job_id, dependency.dependency_id

-- name: wake_waiting_jobs
UPDATE holdfast_live SET note = NULL, state = CASE WHEN due_at > :now THEN 'scheduled' ELSE 'ready' END
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'waiting'

-- name: hold_jobs
UPDATE holdfast_live SET state = 'held', note = held.value->>'note'
FROM json_each(:notes) AS held
WHERE holdfast_live.id = CAST(held.key AS INTEGER) AND state IN ('waiting', 'scheduled', 'ready')
RETURNING holdfast_live.id

-- name: cancel_idle_jobs
-- Cancel jobs that nobody runs.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at, reason, error)
SELECT live.id, 'cancelled', live.queue, live.kind, live.priority, live.due_at, live.attempts, live.crashes, live.token,
    :now, 'cancelled', idle.value->>'note'
FROM json_each(:idle) AS idle CROSS JOIN holdfast_live AS live ON live.id = CAST(idle.key AS INTEGER)
WHERE live.state <> 'running';
DELETE FROM holdfast_live
WHERE id IN (SELECT CAST(idle.key AS INTEGER) FROM json_each(:idle) AS idle) AND state <> 'running'
RETURNING id, has_dependents

-- name: inherit_dependencies
-- Who waits in a line for one of these waits for what that waited for, however many of the line are among them.
WITH RECURSIVE inherited (job_id, dependency_id) AS (
    SELECT later.job_id, own.dependency_id FROM json_each(:ids) AS gone
    CROSS JOIN holdfast_dependency AS later ON later.dependency_id = gone.value
    CROSS JOIN holdfast_plan AS plan ON plan.job_id = later.job_id AND plan.queued
    CROSS JOIN holdfast_dependency AS own ON own.job_id = later.dependency_id
    UNION
    SELECT inherited.job_id, own.dependency_id FROM inherited
    CROSS JOIN holdfast_dependency AS own ON own.job_id = inherited.dependency_id
    WHERE inherited.dependency_id IN (SELECT value FROM json_each(:ids))
)
INSERT INTO holdfast_dependency (job_id, dependency_id) SELECT job_id, dependency_id FROM inherited WHERE true
ON CONFLICT DO NOTHING RETURNING dependency_id
