-- name: find_jobs_by_label
-- Find jobs by label, with those below it (sw/year=2020 is below sw); of those with one unique key, the newest.
SELECT id FROM (
    SELECT id, kind, key, label FROM holdfast_job WHERE label = :label
    UNION ALL SELECT id, kind, key, label FROM holdfast_job WHERE label >= :label || '/' AND label < :label || '0') AS job
WHERE {not_superseded} ORDER BY id

-- name: find_jobs_by_label_pattern
-- Find jobs by a pattern of labels; of those with one unique key, the newest.
SELECT id FROM holdfast_job AS job WHERE label IS NOT NULL AND label GLOB :label AND {not_superseded} ORDER BY id

-- name: delete_dependencies
-- Delete pairs of job and dependency.
DELETE FROM holdfast_dependency WHERE (job_id, dependency_id) IN (
    SELECT deleted.value->>'job_id', deleted.value->>'dependency_id' FROM json_each(:dependencies) AS deleted)

-- name: list_dependents
-- List the jobs that depend on these.
SELECT DISTINCT job_id FROM holdfast_dependency
WHERE dependency_id IN (SELECT value FROM json_each(:ids)) ORDER BY job_id

-- name: hold_jobs
-- Hold jobs that are not running, each with its note.
UPDATE holdfast_live SET state = 'held', note = hold.value->>'note'
FROM json_each(:notes) AS hold
WHERE holdfast_live.id = CAST(hold.key AS INTEGER) AND state IN ('waiting', 'scheduled', 'ready')
RETURNING holdfast_live.id

-- name: cancel_idle_jobs
-- Cancel jobs that are not running.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at, reason,
    error)
SELECT live.id, 'cancelled', live.queue, live.kind, live.priority, live.due_at, live.attempts, live.crashes, live.token,
    :now, idle.value->>'reason', idle.value->>'note'
FROM json_each(:idle) AS idle CROSS JOIN holdfast_live AS live ON live.id = CAST(idle.key AS INTEGER)
WHERE live.state <> 'running';
DELETE FROM holdfast_live
WHERE id IN (SELECT CAST(idle.key AS INTEGER) FROM json_each(:idle) AS idle) AND state <> 'running'
RETURNING id, has_dependents

-- name: inherit_dependencies
-- Plans queued behind these jobs inherit their dependencies, through any number of steps.
-- planner: CROSS JOIN keeps this order; SQLite may otherwise begin with all queued plans.
WITH RECURSIVE inherited (job_id, dependency_id) AS (
    SELECT dependent.job_id, own.dependency_id FROM json_each(:ids) AS finished
    CROSS JOIN holdfast_dependency AS dependent ON dependent.dependency_id = finished.value
    CROSS JOIN holdfast_plan AS plan ON plan.job_id = dependent.job_id AND plan.queued
    CROSS JOIN holdfast_dependency AS own ON own.job_id = dependent.dependency_id
    UNION
    SELECT inherited.job_id, own.dependency_id FROM inherited
    CROSS JOIN holdfast_dependency AS own ON own.job_id = inherited.dependency_id
    WHERE inherited.dependency_id IN (SELECT value FROM json_each(:ids))
)
INSERT INTO holdfast_dependency (job_id, dependency_id) SELECT job_id, dependency_id FROM inherited WHERE true
ON CONFLICT DO NOTHING RETURNING dependency_id
