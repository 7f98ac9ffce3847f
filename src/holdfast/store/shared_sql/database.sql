-- Database: clock, identity and consistency checks. Each check finds rows that must not exist.

-- name: read_now
-- Read the clock of the store.
SELECT (SELECT holdfast.now())

-- name: read_installation
-- Read the id of the installation.
SELECT installation::text FROM holdfast.meta

-- name: find_any_job
-- Find out whether there is any job.
SELECT id FROM holdfast.job LIMIT 1

-- name: find_any_holder
-- Find a worker or a lease that is alive now.
SELECT id FROM holdfast.worker WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval
UNION ALL
SELECT worker FROM holdfast.live WHERE state = 'running' AND lease_expires_at > (SELECT holdfast.now())
LIMIT 1

-- name: find_jobs_without_state
-- Check: jobs that are neither live nor finished. Those of a dropped range are deleted in steps.
SELECT id FROM holdfast.job AS job
WHERE NOT EXISTS (SELECT FROM holdfast.live AS live WHERE live.id = job.id)
    AND NOT EXISTS (SELECT FROM holdfast.finished AS finished WHERE finished.id = job.id)
    AND {not_expired}
LIMIT :limit::bigint

-- name: find_jobs_live_and_finished
-- Check: jobs that are both live and finished.
SELECT live.id FROM holdfast.live AS live JOIN holdfast.finished AS finished ON finished.id = live.id
    LIMIT :limit::bigint

-- name: find_states_without_job
-- Check: live or finished rows without their job.
SELECT id FROM holdfast.live AS live WHERE NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = live.id)
UNION ALL
SELECT id FROM holdfast.finished AS finished WHERE NOT EXISTS (SELECT FROM holdfast.job AS job
    WHERE job.id = finished.id)
LIMIT :limit::bigint

-- name: find_live_orphans
-- Find rows without a request among the newest and the oldest live ones: the doctor looks at no more of them.
SELECT id FROM (
    SELECT * FROM (SELECT id FROM holdfast.live ORDER BY id DESC LIMIT :examined::bigint) AS newest
    UNION
    SELECT * FROM (SELECT id FROM holdfast.live ORDER BY id LIMIT :examined::bigint) AS oldest) AS listed
WHERE NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = listed.id)
ORDER BY id LIMIT :limit::bigint

-- name: find_tags_without_job
-- Check: jobs that are in the index of tags only.
SELECT job_id FROM holdfast.job_tag AS tagged
WHERE NOT EXISTS (SELECT FROM holdfast.job AS job WHERE job.id = tagged.job_id)
LIMIT :limit::bigint

-- name: find_waiting_without_dependencies
-- Check: waiting jobs without a dependency.
SELECT id FROM holdfast.live AS live
WHERE state = 'waiting' AND NOT EXISTS (SELECT FROM holdfast.dependency AS dependency WHERE dependency.job_id = live.id)
LIMIT :limit::bigint

-- name: find_jobs_past_limits
-- Check: live jobs past their limit of attempts or crashes.
SELECT live.id FROM holdfast.live AS live JOIN holdfast.job AS job ON job.id = live.id
WHERE live.attempts > job.max_attempts OR live.crashes > job.max_crashes
LIMIT :limit::bigint

-- name: find_keys_of_two_jobs
-- Check: live jobs whose key, which is unique among live jobs, belongs to another live job.
SELECT live.id FROM holdfast.live AS live JOIN holdfast.job AS job ON job.id = live.id
JOIN holdfast.key AS key ON key.kind = job.kind AND key.key = job.key AND key.scope = 'live'
JOIN holdfast.live AS holder ON holder.id = key.job_id
WHERE key.job_id <> live.id
LIMIT :limit::bigint

-- name: find_batches_miscounted
-- Check: batches whose counters differ from a count of their units. A unit whose result waits in an inbox is 'running'.
SELECT batch_id FROM (
    SELECT batch_id, CASE WHEN name = 'in_inbox' THEN 'running' ELSE name END AS state, count
    FROM holdfast.unit_count WHERE name IN ('done', 'failed', 'skipped', 'cancelled', 'in_doubt', 'in_inbox')
    UNION ALL
    SELECT batch_id, state, -count(*) FROM holdfast.unit WHERE state <> 'pending' GROUP BY batch_id, state) AS counted
WHERE NOT EXISTS (SELECT FROM holdfast.deleted_batch AS deleted WHERE deleted.id = counted.batch_id)
GROUP BY batch_id, state HAVING sum(count) <> 0
LIMIT :limit::bigint

-- name: find_units_without_batch
-- Check: batch ids of units, counters and results without their batch. Those of deleted batches are deleted in steps.
SELECT batch_id FROM holdfast.unit AS unit
WHERE NOT EXISTS (SELECT FROM holdfast.batch AS batch WHERE batch.id = unit.batch_id)
    AND NOT EXISTS (SELECT FROM holdfast.deleted_batch AS deleted WHERE deleted.id = unit.batch_id)
UNION
SELECT batch_id FROM holdfast.unit_count AS counted
WHERE NOT EXISTS (SELECT FROM holdfast.batch AS batch WHERE batch.id = counted.batch_id)
    AND NOT EXISTS (SELECT FROM holdfast.deleted_batch AS deleted WHERE deleted.id = counted.batch_id)
UNION
SELECT batch_id FROM holdfast.inbox AS result
WHERE NOT EXISTS (SELECT FROM holdfast.batch AS batch WHERE batch.id = result.batch_id)
    AND NOT EXISTS (SELECT FROM holdfast.deleted_batch AS deleted WHERE deleted.id = result.batch_id)
LIMIT :limit::bigint

-- name: find_holders_without_lease
-- Check: jobs that hold units of a batch, but do not run.
SELECT job_id FROM holdfast.in_flight AS held
WHERE NOT EXISTS (SELECT FROM holdfast.live AS live WHERE live.id = held.job_id AND live.state = 'running')
LIMIT :limit::bigint

-- name: find_results_without_unit
-- Check: results in inboxes whose unit does not wait for them.
SELECT id FROM holdfast.inbox AS result
WHERE NOT EXISTS (SELECT FROM holdfast.unit AS unit
    WHERE unit.batch_id = result.batch_id AND unit.key = result.key AND unit.state = 'running')
    AND NOT EXISTS (SELECT FROM holdfast.deleted_batch AS deleted WHERE deleted.id = result.batch_id)
LIMIT :limit::bigint
