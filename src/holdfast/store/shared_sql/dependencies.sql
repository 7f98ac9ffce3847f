-- Dependencies: which jobs wait for which.

-- fragment: not_superseded
-- The condition on a job that no later one has its kind, key and label: a sweep that is added again replaces its failures.
-- planner: OFFSET keeps this a lookup per job; as a join it may read every job that has a key.
NOT EXISTS (
        SELECT 1 FROM holdfast.job AS newer
        WHERE newer.key = job.key AND newer.id > job.id AND newer.kind = job.kind AND newer.label = job.label
        LIMIT 1 OFFSET 0)

-- name: find_job_by_key
-- Find the job that has a unique key.
SELECT job_id FROM holdfast.key WHERE kind = :kind AND key = :key

-- name: lock_finished_dependencies
-- Lock the finished ones among the dependencies of new jobs, so that retention keeps them until the jobs are committed.
SELECT id FROM holdfast.finished WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR KEY SHARE

-- name: mark_dependencies
-- Mark jobs as dependencies of others. The row locks make a concurrent settle wait and then see the mark.
UPDATE holdfast.live SET has_dependents = true
WHERE id = ANY(ARRAY(SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE))
RETURNING id

-- name: list_job_states
-- List the states of jobs.
SELECT id, state FROM holdfast.live WHERE id = ANY(:ids::bigint[])
UNION ALL
SELECT id, state FROM holdfast.finished WHERE id = ANY(:ids::bigint[])

-- name: insert_dependencies
-- Insert pairs of job and dependency.
INSERT INTO holdfast.dependency (job_id, dependency_id)
SELECT job_id, dependency_id
FROM jsonb_to_recordset(:dependencies::jsonb) AS dependency (job_id bigint, dependency_id bigint)

-- name: list_waiting_jobs
-- List waiting jobs, a page at a time.
SELECT id FROM holdfast.live WHERE state = 'waiting' AND id > :after ORDER BY id LIMIT :limit::bigint

-- name: lock_waiting_jobs
-- Lock waiting jobs and read when they may run.
-- Producers run it, who may not read all columns of jobs.
SELECT live.id, (SELECT after_when FROM holdfast.job AS job WHERE job.id = live.id) AS after_when,
    (SELECT after_failed FROM holdfast.job AS job WHERE job.id = live.id) AS after_failed
FROM holdfast.live AS live
WHERE {where} AND live.id = ANY(:ids::bigint[]) AND live.state = 'waiting'
ORDER BY live.id FOR UPDATE OF live

-- name: unlocked_waiting
-- Condition: a waiting job whose row no other transaction has locked.
live.id = ANY(ARRAY(
    SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND state = 'waiting'
    ORDER BY id FOR UPDATE SKIP LOCKED))

-- name: list_still_waiting
-- List which of these jobs wait.
SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) AND state = 'waiting'

-- name: insert_pending_effects
-- Record jobs whose effects on others are left for maintenance.
INSERT INTO holdfast.pending_effect (job_id) SELECT value FROM unnest(:ids::bigint[]) AS ids (value)

-- name: find_pending_effect
-- Find out whether any effects are left.
SELECT id FROM holdfast.pending_effect LIMIT 1

-- name: take_pending_effects
-- Take the oldest of them, except those that another worker completes now.
DELETE FROM holdfast.pending_effect
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.pending_effect ORDER BY id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)) RETURNING job_id

-- name: list_left_behind
-- List the jobs that were cancelled because one of these failed, down the whole chain.
WITH RECURSIVE behind (id) AS (
    SELECT dependency.job_id FROM holdfast.dependency AS dependency
    WHERE dependency.dependency_id = ANY(:ids::bigint[])
        AND (SELECT reason FROM holdfast.finished AS finished WHERE finished.id = dependency.job_id) = 'dependency_failed'
    UNION
    SELECT dependency.job_id FROM behind JOIN holdfast.dependency AS dependency ON dependency.dependency_id = behind.id
    WHERE (SELECT reason FROM holdfast.finished AS finished WHERE finished.id = dependency.job_id) = 'dependency_failed'
)
SELECT id FROM behind LIMIT :limit::bigint

-- name: list_dependency_states
-- List the state of each dependency. NULL means that its job was deleted.
SELECT job_id, dependency_id, coalesce(
    (SELECT state FROM holdfast.live AS live WHERE live.id = dependency_id),
    (SELECT state FROM holdfast.finished AS finished WHERE finished.id = dependency_id)) AS state
FROM holdfast.dependency WHERE job_id = ANY(:ids::bigint[])
ORDER BY job_id, dependency_id

-- name: wake_waiting_jobs
-- Make jobs ready or scheduled whose dependencies are satisfied. They keep their due times, and so their places.
UPDATE holdfast.live SET note = NULL,
    state = CASE WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE id = ANY(:ids::bigint[]) AND state = 'waiting'
RETURNING state, queue, kind, priority, due_at
