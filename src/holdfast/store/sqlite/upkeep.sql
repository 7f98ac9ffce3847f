-- Whether the tables agree with each other, on SQLite. Each statement finds what should not be.

-- name: find_jobs_without_state
SELECT id FROM holdfast_job AS job
WHERE NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = job.id)
    AND NOT EXISTS (SELECT 1 FROM holdfast_finished AS finished WHERE finished.id = job.id)
LIMIT :limit

-- name: find_jobs_live_and_finished
SELECT live.id FROM holdfast_live AS live JOIN holdfast_finished AS finished ON finished.id = live.id LIMIT :limit

-- name: find_states_without_job
SELECT id FROM holdfast_live AS live WHERE NOT EXISTS (SELECT 1 FROM holdfast_job AS job WHERE job.id = live.id)
UNION ALL
SELECT id FROM holdfast_finished AS finished WHERE NOT EXISTS (SELECT 1 FROM holdfast_job AS job WHERE job.id = finished.id)
LIMIT :limit

-- name: find_waiting_without_dependencies
SELECT id FROM holdfast_live AS live
WHERE state = 'waiting' AND NOT EXISTS (SELECT 1 FROM holdfast_dependency AS dependency WHERE dependency.job_id = live.id)
LIMIT :limit

-- name: find_jobs_past_limits
SELECT live.id FROM holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id
WHERE live.attempts > job.max_attempts OR live.crashes > job.max_crashes
LIMIT :limit

-- name: find_any_job
SELECT id FROM holdfast_job LIMIT 1

-- name: find_any_holder
-- Somebody who may claim or settle now: a worker that was seen, or a lease that has not expired.
SELECT id FROM holdfast_worker WHERE stopped_at IS NULL AND seen_at > :now - :silence
UNION ALL
SELECT worker FROM holdfast_live WHERE state = 'running' AND lease_expires_at > :now
LIMIT 1
