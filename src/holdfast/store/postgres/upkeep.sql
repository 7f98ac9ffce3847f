-- Whether the tables agree with each other, on PostgreSQL. Each statement finds what should not be.

-- name: find_jobs_without_state
SELECT id FROM holdfast.job AS job
WHERE NOT EXISTS (SELECT FROM holdfast.live AS live WHERE live.id = job.id)
    AND NOT EXISTS (SELECT FROM holdfast.finished AS finished WHERE finished.id = job.id)
LIMIT :limit::bigint

-- name: find_jobs_live_and_finished
SELECT live.id FROM holdfast.live AS live JOIN holdfast.finished AS finished ON finished.id = live.id LIMIT :limit::bigint

-- name: find_states_without_job
SELECT id FROM holdfast.live AS live WHERE NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = live.id)
UNION ALL
SELECT id FROM holdfast.finished AS finished WHERE NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = finished.id)
LIMIT :limit::bigint

-- name: find_waiting_without_dependencies
SELECT id FROM holdfast.live AS live
WHERE state = 'waiting' AND NOT EXISTS (SELECT FROM holdfast.dependency AS dependency WHERE dependency.job_id = live.id)
LIMIT :limit::bigint

-- name: find_jobs_past_limits
SELECT live.id FROM holdfast.live AS live JOIN holdfast.job AS job ON job.id = live.id
WHERE live.attempts > job.max_attempts OR live.crashes > job.max_crashes
LIMIT :limit::bigint

-- name: find_any_job
SELECT id FROM holdfast.job LIMIT 1

-- name: find_any_holder
-- Somebody who may claim or settle now: a worker that was seen, or a lease that has not expired.
SELECT id FROM holdfast.worker WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval
UNION ALL
SELECT worker FROM holdfast.live WHERE state = 'running' AND lease_expires_at > (SELECT holdfast.now())
LIMIT 1
