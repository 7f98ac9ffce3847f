-- Batches: identity, state, runs and holders.

-- fragment: batch_columns
id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at, failures::text,
    origin

-- name: lock_latest_batch
-- Lock the newest generation of a batch.
SELECT {batch_columns} FROM holdfast.batch WHERE identity = :identity ORDER BY generation DESC LIMIT 1 FOR UPDATE

-- name: list_generations
-- List the newest generations of a batch.
SELECT {batch_columns} FROM holdfast.batch WHERE identity = :identity ORDER BY generation DESC LIMIT :limit::bigint

-- name: lock_batch
-- Lock a batch. Every holder that takes or returns units has this lock.
SELECT {batch_columns} FROM holdfast.batch WHERE id = :id FOR UPDATE

-- name: get_batch
-- Read a batch.
SELECT {batch_columns} FROM holdfast.batch WHERE id = :id

-- name: list_batches
-- List batches, newest first, below an id: those that match, of as many as the window has.
SELECT {batch_columns} FROM (
    SELECT * FROM holdfast.batch WHERE id < :before ORDER BY id DESC LIMIT :window::bigint) AS listed
WHERE {where} ORDER BY id DESC LIMIT :limit::bigint

-- name: get_batch_window_end
-- Read the last id of a window of batches.
SELECT id FROM holdfast.batch WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :window::bigint - 1

-- fragment: batch_has_states
-- Condition: one of these states.
state = ANY(:states::text[])

-- fragment: batch_has_function
-- Condition: a function like this pattern.
kind LIKE :function

-- fragment: batch_has_name
-- Condition: a name, or without one a source, like this pattern.
coalesce(name, source) LIKE :name

-- fragment: batch_has_owner
-- Condition: begun by a person like this pattern.
actor LIKE :owner

-- fragment: batch_has_since
-- Condition: it began at this time or later.
created_at >= :since

-- fragment: batch_has_until
-- Condition: it began before this time.
created_at < :until

-- fragment: batch_has_older_than
-- Condition: it finished before this time, or began before it and is not finished.
coalesce(finished_at, created_at) < :older_than

-- name: count_batches
-- Count the newest batches by state.
SELECT state, count(*) AS count
FROM (SELECT state FROM holdfast.batch ORDER BY id DESC LIMIT :limit::bigint) AS newest GROUP BY state ORDER BY state

-- name: count_units_by_kind
-- Sum the counters of the newest batches by function and name. Labels beyond the largest ones are summed as other.
WITH summed AS (
    SELECT newest.kind, counted.name, sum(counted.count)::bigint AS count
    -- planner: CROSS JOIN keeps SQLite from reading all counters first.
    FROM (SELECT id, kind FROM holdfast.batch ORDER BY id DESC LIMIT :limit::bigint) AS newest
    CROSS JOIN holdfast.unit_count AS counted WHERE counted.batch_id = newest.id
    GROUP BY newest.kind, counted.name
), ranked AS (
    SELECT kind, name, count,
        row_number() OVER (PARTITION BY kind, substr(name, 1, 6) = 'label:' ORDER BY count DESC, name) AS place
    FROM summed
)
SELECT kind, name, count FROM ranked WHERE place <= :labels::bigint
UNION ALL
SELECT kind, 'label:other', sum(count)::bigint FROM ranked WHERE place > :labels::bigint GROUP BY kind
ORDER BY kind, name

-- name: insert_batch_event
-- Write an event of a batch.
INSERT INTO holdfast.batch_event (batch_id, at, name, actor, run_number, detail)
VALUES (:batch_id, (SELECT holdfast.now()), :name, :actor, :run_number, :detail::json)

-- name: insert_batch_tally
-- Count ends of batches by result.
INSERT INTO holdfast.batch_tally (result, count) VALUES (:result, :count)

-- name: take_batch_tallies
-- Delete the oldest counts of ends, if there are many, to add them up.
DELETE FROM holdfast.batch_tally WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.batch_tally ORDER BY id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
AND (SELECT count(*) FROM (SELECT 1 AS one FROM holdfast.batch_tally LIMIT :fewest::bigint) AS known) >= :fewest::bigint
RETURNING result, count

-- name: count_batch_ends
-- Count the ends of batches by result, since the store exists.
SELECT result, sum(count)::bigint AS count FROM holdfast.batch_tally GROUP BY result

-- name: list_batch_events
-- List the events of a batch, newest first, below an id.
SELECT id, at, name, actor, run_number, detail::text FROM holdfast.batch_event
WHERE batch_id = :batch_id AND id < :before ORDER BY id DESC LIMIT :limit::bigint

-- name: insert_batch
-- Create a generation of a batch.
INSERT INTO holdfast.batch (identity, generation, kind, arguments, source, name, state, options, actor, created_at)
VALUES (:identity, :generation, :kind, :arguments::json, :source, :name, 'ready', '{}', :actor, (SELECT holdfast.now()))
ON CONFLICT (identity, generation) DO NOTHING RETURNING id

-- name: start_batch_run
-- Start a run of a batch.
UPDATE holdfast.batch SET state = 'running', run_number = run_number + 1, aborted_by = NULL, failures = NULL,
    finished_at = NULL,
    started_at = coalesce(started_at, (SELECT holdfast.now())), total = coalesce(:total::bigint, total),
    version = :version, inputs = :inputs::json, code = :code, origin = coalesce(:origin, origin), options = '{}'
WHERE id = :id RETURNING run_number

-- name: finish_batch
-- Finish a batch, unless it was cancelled. A total of NULL: the input was not read to its end.
UPDATE holdfast.batch SET state = :state, aborted_by = :aborted_by, requested = NULL,
    total = :total::bigint, finished_at = (SELECT holdfast.now())
WHERE id = :id AND state <> 'cancelled' RETURNING id

-- name: request_batch_control
-- Request pause or cancel of an open batch. A cancel is never withdrawn.
UPDATE holdfast.batch SET requested = :requested
WHERE id = :id AND state IN ('ready', 'running', 'stopped', 'paused') AND requested IS DISTINCT FROM 'cancel'
RETURNING id

-- name: set_batch_state
-- Stop a batch in the given state and clear the request.
UPDATE holdfast.batch SET state = :state, requested = NULL, finished_at = (SELECT holdfast.now()) WHERE id = :id

-- name: reopen_batch
-- Make a batch running again.
UPDATE holdfast.batch SET state = 'running', requested = NULL, aborted_by = NULL, failures = NULL, finished_at = NULL
WHERE id = :id

-- name: abort_batch
-- Request all holders to stop, and record the failures that are the reason. The first reason stays.
UPDATE holdfast.batch SET aborted_by = :aborted_by, failures = :failures::json
WHERE id = :id AND state = 'running' AND aborted_by IS NULL

-- name: start_batch_shards
-- Record that the workers run the batch, and how.
UPDATE holdfast.batch SET options = :options::json, total = :total WHERE id = :id

-- name: set_batch_total
-- Record the total while results still wait for their consumer.
UPDATE holdfast.batch SET total = :total WHERE id = :id

-- name: list_shards
-- List the live ones among the shards of a batch, by their keys, and their states.
SELECT taken.key, live.state FROM holdfast.key AS taken JOIN holdfast.live AS live ON live.id = taken.job_id
WHERE taken.kind = :kind AND taken.key = ANY(:keys::text[])

-- name: list_batches_without_shards
-- Lock running batches on workers that have no holder, above an id. A batch that another transaction has locked is left
-- for later.
SELECT id FROM holdfast.batch AS batch
WHERE {lock_wait} AND state = 'running' AND id > :after AND options::text <> '{}'
    AND NOT EXISTS (SELECT FROM holdfast.in_flight AS in_flight WHERE in_flight.batch_id = batch.id)
ORDER BY id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED

-- name: lock_cancelled_batch
-- Lock a batch whose cancel is not complete and that has no holder. If it is locked, another process continues it.
SELECT id FROM holdfast.batch AS batch
WHERE requested = 'cancel' AND state IN ('ready', 'running', 'paused', 'stopped')
    AND NOT EXISTS (SELECT FROM holdfast.in_flight AS in_flight WHERE in_flight.batch_id = batch.id)
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: lock_expired_batches
-- Lock finished batches past their age.
SELECT id FROM holdfast.batch
WHERE {lock_wait} AND state IN ('done', 'partial', 'failed', 'cancelled')
    AND finished_at < (SELECT holdfast.now()) - :age::interval
ORDER BY finished_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED

-- name: insert_deleted_batches
-- Record batches whose units, counters and results are to be deleted.
INSERT INTO holdfast.deleted_batch (id, deleted_at)
SELECT value, (SELECT holdfast.now()) FROM unnest(:ids::bigint[]) AS ids (value)

-- name: delete_batches
-- Delete batches. Their other rows are deleted in steps.
DELETE FROM holdfast.batch WHERE id = ANY(:ids::bigint[]) RETURNING id

-- name: lock_deleted_batch
-- Lock a deleted batch that still has rows: this one, or any. If it is locked, another process continues it.
SELECT id FROM holdfast.deleted_batch WHERE :id::bigint IS NULL OR id = :id::bigint
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: finish_batch_deletion
-- Delete the counters and the events of a deleted batch, and its record.
WITH deleted_counts AS (DELETE FROM holdfast.unit_count WHERE batch_id = :id),
deleted_events AS (DELETE FROM holdfast.batch_event WHERE batch_id = :id)
DELETE FROM holdfast.deleted_batch WHERE id = :id RETURNING id

-- fragment: batch_is_shared
-- Whether another holder works on the batch, or has.
EXISTS (SELECT FROM holdfast.in_flight WHERE batch_id = :batch_id AND job_id <> :job_id)
    OR EXISTS (SELECT FROM holdfast.unit_count WHERE batch_id = :batch_id AND job_id <> :job_id)

-- name: check_batch_shared
-- Check whether another holder works on the batch, or has. Run it under lock_batch, as a statement of
-- its own: a statement that waits for the lock sees the rows as of before the wait.
SELECT {batch_is_shared} AS shared

-- name: claim_driver
-- Claim the driver job of a foreground run. No worker serves its kind.
UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker, attempts = attempts + 1,
    claimed_at = (SELECT holdfast.now()), started_at = (SELECT holdfast.now()),
    lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval
WHERE id = :id AND state = 'ready' RETURNING token

-- name: list_batch_holders
-- List the holders of a batch whose lease is valid, and the rest of their leases.
SELECT in_flight.job_id, in_flight.token, in_flight.owner::text, live.claimed_at,
    live.lease_expires_at - (SELECT holdfast.now()) AS remaining, live.worker
FROM {in_flight_with_live}
WHERE in_flight.batch_id = :batch_id AND live.state = 'running' AND live.token = in_flight.token

-- name: list_batch_details
-- Read counters and holders of several batches in one answer. Labels are read as in read_unit_counts.
WITH summed AS (
    SELECT batch_id, name, sum(count)::bigint AS count FROM holdfast.unit_count
    WHERE batch_id = ANY(:ids::bigint[]) GROUP BY batch_id, name
), ranked AS (
    SELECT batch_id, name, count,
        row_number() OVER (PARTITION BY batch_id, substr(name, 1, 6) = 'label:' ORDER BY count DESC, name) AS place
    FROM summed WHERE count <> 0
)
SELECT batch_id, 'count' AS part, name, count, NULL::timestamptz AS since, false AS expired
FROM ranked WHERE place <= :labels::bigint
UNION ALL
SELECT batch_id, 'count', 'other_labels', count(*), NULL::timestamptz, false
FROM ranked WHERE place > :labels::bigint GROUP BY batch_id
UNION ALL
SELECT in_flight.batch_id, 'holder', in_flight.owner::text, in_flight.job_id, live.claimed_at,
    live.lease_expires_at < (SELECT holdfast.now())
FROM {in_flight_with_live}
WHERE in_flight.batch_id = ANY(:ids::bigint[]) AND live.state = 'running' AND live.token = in_flight.token

-- name: list_in_flight
-- List the units in flight with other holders.
SELECT units::text FROM holdfast.in_flight WHERE batch_id = :batch_id AND job_id <> :job_id

-- fragment: upsert_in_flight
-- The batch of a holder never changes: the index by batch stays as it is.
INSERT INTO holdfast.in_flight (job_id, batch_id, token, run_number, units, isolated, in_doubt_if_lost, owner)
VALUES (:job_id, :batch_id, :token, :run_number, :units::json, :isolated, :in_doubt_if_lost, :owner::json)
ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, run_number = excluded.run_number, units = excluded.units,
    isolated = excluded.isolated, in_doubt_if_lost = excluded.in_doubt_if_lost

-- name: put_in_flight
-- Record the units that a holder has in flight.
{upsert_in_flight}

-- name: delete_in_flight
-- Delete the records of holders and return their units in flight.
DELETE FROM holdfast.in_flight WHERE job_id = ANY(:ids::bigint[])
RETURNING job_id, batch_id, run_number, units::text, isolated, in_doubt_if_lost
