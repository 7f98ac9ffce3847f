-- fragment: in_flight_with_live
-- planner: LATERAL with LIMIT 1 forces a primary-key lookup, as in live_with_job.
holdfast.in_flight CROSS JOIN LATERAL (
    SELECT claimed_at, lease_expires_at, state, token, worker FROM holdfast.live
    WHERE live.id = in_flight.job_id LIMIT 1) AS live

-- name: lock_batch_run
-- Check the lease of a run and lock both rows, so that only one holder at a time takes units. Read the stop switch
-- and the clock.
WITH owned AS (
    SELECT id FROM holdfast.live
    WHERE id = :job_id AND token = :token AND worker = :worker AND state = 'running' FOR NO KEY UPDATE
)
SELECT requested, aborted_by, (SELECT mode FROM holdfast.stop_switch) AS switch, (SELECT holdfast.now()) AS now,
    NULL::boolean AS shared     -- unknown: this statement sees the rows as of before its wait for the lock
FROM holdfast.batch WHERE id = :batch_id AND EXISTS (SELECT FROM owned) FOR UPDATE

-- name: put_progress
-- Add to the counters of a holder, and record the units that it has in flight.
WITH counted AS ({upsert_counts})
{upsert_in_flight}

-- name: delete_units
-- Delete some units of a deleted batch.
DELETE FROM holdfast.unit
WHERE ctid = ANY(ARRAY(SELECT ctid FROM holdfast.unit WHERE batch_id = :batch_id LIMIT :limit::bigint))
RETURNING 1 AS one

-- name: delete_batch_results
-- Delete some results of a deleted batch.
DELETE FROM holdfast.inbox
WHERE ctid = ANY(ARRAY(SELECT ctid FROM holdfast.inbox WHERE batch_id = :batch_id LIMIT :limit::bigint))
RETURNING 1 AS one
