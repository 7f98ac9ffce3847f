-- Actions on jobs: cancel, hold, release, retry, edit.

-- name: lock_live_jobs
-- Lock live jobs, in id order.
SELECT id, state FROM holdfast.live WHERE {lock_wait} AND id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE

-- name: lock_finished_jobs
-- Lock finished jobs, in id order.
SELECT id FROM holdfast.finished WHERE {lock_wait} AND id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE

-- name: request_job_control
-- Request cancel or pause. The holder reads it with its next renewal. Cancel outranks pause.
UPDATE holdfast.live SET requested = :requested, note = coalesce(:note, note)
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state = 'running' AND requested IS DISTINCT FROM :requested
    AND requested IS DISTINCT FROM 'cancel'
RETURNING id

-- name: withdraw_pause_request
-- Withdraw a pause request that the holder has not read yet.
UPDATE holdfast.live SET requested = NULL, note = NULL
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state = 'running' AND requested = 'pause' RETURNING id

-- name: release_held_jobs
-- Release held jobs. Those with dependencies wait first; those out of attempts get all of them again. Every build may
-- read them again.
UPDATE holdfast.live AS live SET note = NULL, reader = '', refusals = NULL,
    attempts = CASE WHEN attempts >= (SELECT max_attempts FROM holdfast.job AS job WHERE job.id = live.id)
        THEN 0 ELSE attempts END,
    crashes = CASE WHEN crashes >= (SELECT max_crashes FROM holdfast.job AS job WHERE job.id = live.id)
        THEN 0 ELSE crashes END,
    state = CASE
    WHEN EXISTS (SELECT FROM holdfast.dependency AS dependency WHERE dependency.job_id = live.id) THEN 'waiting'
    WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state = 'held' RETURNING id, state

-- name: run_retries_now
-- Make jobs ready that wait for a retry.
-- planner: state || '' hides the state, so that PostgreSQL uses the primary key and not the index of scheduled jobs.
UPDATE holdfast.live SET state = 'ready', due_at = (SELECT holdfast.now())
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state || '' = 'scheduled' AND attempts > 0 RETURNING id

-- name: set_priority
-- Change the priority of live jobs.
UPDATE holdfast.live SET priority = :priority WHERE {lock_wait} AND id = ANY(:ids::bigint[]) RETURNING id

-- name: set_queue
-- Move jobs to another queue. A running job counts against its queue's limit and stays. Other workers may serve the new
-- queue, so that a ready job that was refused is offered to all of them.
UPDATE holdfast.live SET queue = :queue, reader = CASE WHEN state = 'held' THEN reader ELSE '' END,
    refusals = CASE WHEN state = 'held' THEN refusals END
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state <> 'running' RETURNING id

-- name: set_due_time
-- Change the due time of jobs that are not running.
UPDATE holdfast.live SET due_at = :due_at, state = CASE
    WHEN state IN ('held', 'waiting') THEN state
    WHEN :due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state <> 'running' RETURNING id

-- name: lock_idle_jobs
-- Lock jobs that are not running, in id order.
SELECT id FROM holdfast.live WHERE {lock_wait} AND id = ANY(:ids::bigint[]) AND state <> 'running'
ORDER BY id FOR UPDATE

-- name: read_payloads
-- Read payloads in a statement of its own: the locking one sees the rows as of before its wait.
SELECT id, payload::text FROM holdfast.job WHERE id = ANY(:ids::bigint[])

-- name: lock_unsuccessful_jobs
-- Lock dead and cancelled jobs and read their keys and conditions.
-- planner: IS FALSE here and || '' in lock_done_jobs hide the state, so that PostgreSQL keeps the primary key.
SELECT finished.id, finished.kind, job.key, job.after_when, job.after_failed
FROM {finished_with_job}
WHERE {lock_wait} AND finished.id = ANY(:ids::bigint[]) AND (finished.state = 'done') IS FALSE
ORDER BY finished.id FOR UPDATE OF finished

-- name: lock_done_jobs
-- Lock done jobs of a kind and read their keys and conditions.
SELECT finished.id, finished.kind, job.key, job.after_when, job.after_failed
FROM {finished_with_job}
WHERE {lock_wait} AND finished.id = ANY(:ids::bigint[]) AND finished.state || '' = 'done' AND finished.kind = :kind
ORDER BY finished.id FOR UPDATE OF finished
