-- name: find_jobs_by_label
-- Find jobs by label, with those below it (sw/year=2020 is below sw); of those with one unique key, the newest.
SELECT id FROM (
    SELECT id, kind, key, label FROM holdfast.job WHERE label = :label
    UNION ALL SELECT id, kind, key, label FROM holdfast.job
    WHERE label ~>=~ (:label::text || '/') AND label ~<~ (:label::text || '0')) AS job
WHERE {not_superseded} AND {not_expired} ORDER BY id

-- name: find_jobs_by_label_pattern
-- Find jobs by a pattern of labels; of those with one unique key, the newest.
SELECT id FROM holdfast.job AS job WHERE label LIKE :label AND {not_superseded} AND {not_expired} ORDER BY id

-- name: delete_dependencies
-- Delete pairs of job and dependency.
DELETE FROM holdfast.dependency
USING jsonb_to_recordset(:dependencies::jsonb) AS deleted (job_id bigint, dependency_id bigint)
WHERE dependency.job_id = deleted.job_id AND dependency.dependency_id = deleted.dependency_id

-- name: list_dependents
-- List the jobs that depend on these.
-- planner: OFFSET 0 keeps the index on dependency_id; DISTINCT alone may read the primary key in order.
SELECT DISTINCT job_id FROM (
    SELECT job_id FROM holdfast.dependency WHERE dependency_id = ANY(:ids::bigint[]) OFFSET 0) AS dependents
ORDER BY job_id

-- name: hold_jobs
-- Hold jobs that are not running, each with its note.
UPDATE holdfast.live SET state = 'held', note = :notes::jsonb->id::text->>'note'
WHERE {lock_wait} AND id = ANY(ARRAY(SELECT jsonb_object_keys(:notes::jsonb)::bigint))
    AND state IN ('waiting', 'scheduled', 'ready')
RETURNING id

-- name: cancel_idle_jobs
-- Cancel jobs that are not running.
WITH deleted AS (
    DELETE FROM holdfast.live
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:idle::jsonb)::bigint)) AND state <> 'running'
    RETURNING *, :idle::jsonb->id::text->>'note' AS error, :idle::jsonb->id::text->>'reason' AS reason
), inserted AS (
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, finished_at,
        reason, error)
    SELECT id, 'cancelled', queue, kind, priority, due_at, attempts, crashes, token, (SELECT holdfast.now()),
        reason, error
    FROM deleted
)
SELECT id, has_dependents FROM deleted

-- name: inherit_dependencies
-- Plans queued behind these jobs inherit their dependencies, through any number of steps.
WITH RECURSIVE inherited (job_id, dependency_id) AS (
    SELECT dependent.job_id, own.dependency_id FROM holdfast.dependency AS dependent
    JOIN holdfast.plan ON plan.job_id = dependent.job_id AND plan.queued
    JOIN holdfast.dependency AS own ON own.job_id = dependent.dependency_id
    WHERE dependent.dependency_id = ANY(:ids::bigint[])
    UNION
    SELECT inherited.job_id, own.dependency_id FROM inherited
    JOIN holdfast.dependency AS own ON own.job_id = inherited.dependency_id
        WHERE inherited.dependency_id = ANY(:ids::bigint[])
)
INSERT INTO holdfast.dependency (job_id, dependency_id) SELECT job_id, dependency_id FROM inherited
ON CONFLICT DO NOTHING RETURNING dependency_id
