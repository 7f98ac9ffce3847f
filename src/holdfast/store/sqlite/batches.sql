-- Batches: identity, state, runs and holders.

-- name: delete_batch
-- Delete a batch and its units, counters and results.
DELETE FROM holdfast_unit WHERE batch_id = :id;
DELETE FROM holdfast_unit_count WHERE batch_id = :id;
DELETE FROM holdfast_inbox WHERE batch_id = :id;
DELETE FROM holdfast_batch WHERE id = :id RETURNING id

-- name: lock_batch_run
-- Check the lease of a run and lock both rows, so that only one holder at a time takes units.
SELECT batch.requested, batch.aborted_by
FROM holdfast_live AS live CROSS JOIN holdfast_batch AS batch ON batch.id = :batch_id
WHERE live.id = :job_id AND live.token = :token AND live.state = 'running'

-- name: list_batch_holders
-- List the holders of a batch whose lease is valid, and the rest of their leases.
SELECT in_flight.job_id, in_flight.token, in_flight.owner, live.claimed_at,
    live.lease_expires_at - :now AS remaining
FROM holdfast_in_flight AS in_flight CROSS JOIN holdfast_live AS live ON live.id = in_flight.job_id
WHERE in_flight.batch_id = :batch_id AND live.state = 'running' AND live.token = in_flight.token

-- name: list_batch_details
-- Read counters and holders of several batches in one answer.
SELECT batch_id, 'count' AS part, name, sum(count) AS count, NULL AS since FROM holdfast_unit_count
WHERE batch_id IN (SELECT value FROM json_each(:ids)) GROUP BY batch_id, name
UNION ALL
SELECT in_flight.batch_id, 'holder', in_flight.owner, in_flight.job_id, live.claimed_at
FROM holdfast_in_flight AS in_flight JOIN holdfast_live AS live ON live.id = in_flight.job_id
WHERE in_flight.batch_id IN (SELECT value FROM json_each(:ids)) AND live.state = 'running' AND live.token = in_flight.token
