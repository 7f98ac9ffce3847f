-- fragment: in_flight_with_live
-- planner: CROSS JOIN keeps the order, so that each holder is one primary-key lookup.
holdfast_in_flight AS in_flight CROSS JOIN holdfast_live AS live ON live.id = in_flight.job_id

-- name: lock_batch_run
-- Check the lease of a run and lock both rows, so that only one holder at a time takes units. Read the stop switch
-- and the clock, and whether the batch is shared: there is one writer, so this statement sees all that others wrote.
SELECT batch.requested, batch.aborted_by, (SELECT mode FROM holdfast_stop_switch) AS switch, :now AS now,
    ({batch_is_shared}) AS shared
FROM holdfast_live AS live CROSS JOIN holdfast_batch AS batch ON batch.id = :batch_id
WHERE live.id = :job_id AND live.token = :token AND live.worker = :worker AND live.state = 'running'

-- name: put_progress
-- Add to the counters of a holder, and record the units that it has in flight.
{upsert_counts};
{upsert_in_flight}

-- name: delete_units
-- Delete some units of a deleted batch.
DELETE FROM holdfast_unit
WHERE batch_id = :batch_id AND key IN (SELECT key FROM holdfast_unit WHERE batch_id = :batch_id LIMIT :limit)
RETURNING 1 AS one

-- name: delete_batch_results
-- Delete some results of a deleted batch.
DELETE FROM holdfast_inbox
WHERE id IN (SELECT id FROM holdfast_inbox WHERE batch_id = :batch_id LIMIT :limit) RETURNING 1 AS one
