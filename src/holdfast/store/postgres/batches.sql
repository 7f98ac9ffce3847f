-- Batches: identity, state, runs and holders.

-- name: delete_batch
-- Delete a batch and its units, counters and results.
WITH deleted_units AS (DELETE FROM holdfast.unit WHERE batch_id = :id),
deleted_counts AS (DELETE FROM holdfast.unit_count WHERE batch_id = :id),
deleted_results AS (DELETE FROM holdfast.inbox WHERE batch_id = :id)
DELETE FROM holdfast.batch WHERE id = :id RETURNING id

-- name: lock_batch_run
-- Check the lease of a run and lock both rows, so that only one holder at a time takes units.
WITH owned AS (
    SELECT id FROM holdfast.live WHERE id = :job_id AND token = :token AND state = 'running' FOR NO KEY UPDATE
)
SELECT requested, aborted_by FROM holdfast.batch WHERE id = :batch_id AND EXISTS (SELECT FROM owned) FOR UPDATE

-- name: list_batch_holders
-- List the holders of a batch whose lease is valid, and the rest of their leases.
SELECT in_flight.job_id, in_flight.token, in_flight.owner::text, live.claimed_at,
    live.lease_expires_at - (SELECT holdfast.now()) AS remaining
FROM holdfast.in_flight CROSS JOIN LATERAL (
    SELECT claimed_at, lease_expires_at, state, token FROM holdfast.live WHERE live.id = in_flight.job_id LIMIT 1) AS live
WHERE in_flight.batch_id = :batch_id AND live.state = 'running' AND live.token = in_flight.token

-- name: list_batch_details
-- Read counters and holders of several batches in one answer.
SELECT batch_id, 'count' AS part, name, sum(count)::bigint AS count, NULL::timestamptz AS since FROM holdfast.unit_count
WHERE batch_id = ANY(:ids::bigint[]) GROUP BY batch_id, name
UNION ALL
SELECT in_flight.batch_id, 'holder', in_flight.owner::text, in_flight.job_id, live.claimed_at
FROM holdfast.in_flight CROSS JOIN LATERAL (
    SELECT claimed_at, state, token FROM holdfast.live WHERE live.id = in_flight.job_id LIMIT 1) AS live
WHERE in_flight.batch_id = ANY(:ids::bigint[]) AND live.state = 'running' AND live.token = in_flight.token
