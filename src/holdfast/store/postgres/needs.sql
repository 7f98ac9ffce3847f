-- Dependencies on PostgreSQL.

-- name: find_jobs_by_label
SELECT id FROM holdfast.job WHERE label = :label ORDER BY id

-- name: find_jobs_by_label_pattern
SELECT id FROM holdfast.job WHERE label LIKE :label ORDER BY id

-- name: find_job_by_key
SELECT job_id FROM holdfast.key WHERE kind = :kind AND key = :key

-- name: mark_dependencies
-- Locks the has_dependents rows: whoever settles one of them now waits, and then sees that it is has_dependents.
UPDATE holdfast.live SET has_dependents = true
WHERE id = ANY(ARRAY(SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE))
RETURNING id

-- name: list_job_states
SELECT id, state FROM holdfast.live WHERE id = ANY(:ids::bigint[])
UNION ALL
SELECT id, state FROM holdfast.finished WHERE id = ANY(:ids::bigint[])

-- name: insert_dependencies
INSERT INTO holdfast.dependency (job_id, dependency_id)
SELECT job_id, dependency_id FROM jsonb_to_recordset(:dependencies::jsonb) AS dependency (job_id bigint, dependency_id bigint)

-- name: list_dependents
SELECT DISTINCT job_id
FROM (SELECT job_id FROM holdfast.dependency WHERE dependency_id = ANY(:ids::bigint[]) OFFSET 0) AS found ORDER BY job_id

-- name: list_waiting_jobs
SELECT id FROM holdfast.live WHERE state = 'waiting' AND id > :after ORDER BY id LIMIT :limit::bigint

-- name: lock_waiting_jobs
SELECT live.id, job.after_when, job.after_failed
FROM holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job
WHERE live.id = ANY(:ids::bigint[]) AND live.state = 'waiting'
ORDER BY live.id FOR UPDATE OF live

-- name: list_dependency_states
SELECT job_id, dependency_id, coalesce(
    (SELECT state FROM holdfast.live WHERE live.id = dependency_id),
    (SELECT state FROM holdfast.finished WHERE finished.id = dependency_id)) AS state
FROM holdfast.dependency WHERE job_id = ANY(:ids::bigint[])
ORDER BY job_id, dependency_id

-- name: wake_waiting_jobs
UPDATE holdfast.live SET note = NULL,
    state = CASE WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE id = ANY(:ids::bigint[]) AND state = 'waiting'

-- name: hold_jobs
UPDATE holdfast.live SET state = 'held', note = :notes::jsonb->id::text->>'note'
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:notes::jsonb)::bigint)) AND state IN ('waiting', 'scheduled', 'ready')
RETURNING id

-- name: cancel_idle_jobs
-- Cancel jobs that nobody runs.
WITH gone AS (
    DELETE FROM holdfast.live
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:idle::jsonb)::bigint)) AND state <> 'running'
    RETURNING *, :idle::jsonb->id::text->>'note' AS error
), kept AS (
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at, reason, error)
    SELECT id, 'cancelled', queue, kind, priority, due_at, attempts, crashes, token, (SELECT holdfast.now()),
        'cancelled', error
    FROM gone
)
SELECT id, has_dependents FROM gone

-- name: inherit_dependencies
-- Who waits in a line for one of these waits for what that waited for, however many of the line are among them.
WITH RECURSIVE inherited (job_id, dependency_id) AS (
    SELECT later.job_id, own.dependency_id FROM holdfast.dependency AS later
    JOIN holdfast.plan ON plan.job_id = later.job_id AND plan.queued
    JOIN holdfast.dependency AS own ON own.job_id = later.dependency_id
    WHERE later.dependency_id = ANY(:ids::bigint[])
    UNION
    SELECT inherited.job_id, own.dependency_id FROM inherited
    JOIN holdfast.dependency AS own ON own.job_id = inherited.dependency_id WHERE inherited.dependency_id = ANY(:ids::bigint[])
)
INSERT INTO holdfast.dependency (job_id, dependency_id) SELECT job_id, dependency_id FROM inherited
ON CONFLICT DO NOTHING RETURNING dependency_id
