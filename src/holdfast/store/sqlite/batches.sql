-- Batches on SQLite.

-- name: lock_latest_batch
SELECT id, identity, generation, kind, arguments, source, name, state, requested, aborted_by, total, run_number,
    version, inputs, code, options, actor, created_at, started_at, finished_at
FROM holdfast_batch WHERE identity = :identity ORDER BY generation DESC LIMIT 1

-- name: get_latest_batch
SELECT id, identity, generation, kind, arguments, source, name, state, requested, aborted_by, total, run_number,
    version, inputs, code, options, actor, created_at, started_at, finished_at
FROM holdfast_batch WHERE identity = :identity ORDER BY generation DESC LIMIT 1

-- name: lock_batch
-- Whoever takes units of a batch, or gives them back, holds this lock.
SELECT id, identity, generation, kind, arguments, source, name, state, requested, aborted_by, total, run_number,
    version, inputs, code, options, actor, created_at, started_at, finished_at
FROM holdfast_batch WHERE id = :id

-- name: get_batch
SELECT id, identity, generation, kind, arguments, source, name, state, requested, aborted_by, total, run_number,
    version, inputs, code, options, actor, created_at, started_at, finished_at
FROM holdfast_batch WHERE id = :id

-- name: list_batches
SELECT id, identity, generation, kind, arguments, source, name, state, requested, aborted_by, total, run_number,
    version, inputs, code, options, actor, created_at, started_at, finished_at
FROM holdfast_batch WHERE id < :before ORDER BY id DESC LIMIT :limit

-- name: insert_batch
INSERT INTO holdfast_batch (identity, generation, kind, arguments, source, name, state, options, actor, created_at)
VALUES (:identity, :generation, :kind, :arguments, :source, :name, 'ready', '{}', :actor,
    :now)
ON CONFLICT (identity, generation) DO NOTHING
RETURNING id

-- name: start_batch_run
UPDATE holdfast_batch SET state = 'running', run_number = run_number + 1, aborted_by = NULL, finished_at = NULL,
    started_at = coalesce(started_at, :now), total = coalesce(:total, total), version = :version,
    inputs = :inputs, code = :code, options = '{}'
WHERE id = :id
RETURNING run_number

-- name: finish_batch
UPDATE holdfast_batch SET state = :state, aborted_by = :aborted_by, requested = NULL,
    total = coalesce(:total, total), finished_at = :now
WHERE id = :id AND state <> 'cancelled'

-- name: request_batch_control
UPDATE holdfast_batch SET requested = :requested
WHERE id = :id AND state IN ('ready', 'running', 'stopped', 'paused') AND requested IS NOT 'cancel'
RETURNING id

-- name: set_batch_state
UPDATE holdfast_batch SET state = :state, requested = NULL, finished_at = :now WHERE id = :id

-- name: reopen_batch
UPDATE holdfast_batch SET state = 'running', requested = NULL, aborted_by = NULL, finished_at = NULL WHERE id = :id

-- name: lock_batch_run
-- A run may write while it holds its lease.
SELECT batch.requested, batch.aborted_by
FROM holdfast_live AS live CROSS JOIN holdfast_batch AS batch ON batch.id = :batch_id
WHERE live.id = :job_id AND live.token = :token AND live.state = 'running'

-- name: check_batch_shared
-- Whether another holder works on the batch, or has written to its ledger.
SELECT EXISTS (
    SELECT 1 FROM holdfast_in_flight WHERE batch_id = :batch_id AND job_id <> :job_id)
    OR EXISTS (
    SELECT 1 FROM holdfast_unit_count WHERE batch_id = :batch_id AND job_id <> :job_id) AS shared

-- name: claim_driver
-- The driver's own job, which no worker knows: it is claimed by whoever made it.
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker, attempts = attempts + 1,
    claimed_at = :now, started_at = :now,
    lease_expires_at = :now + :lease_duration
WHERE id = :id AND state = 'ready'
RETURNING token

-- name: list_batch_holders
-- Who works on a batch: leases that have not finished, and for how long they still hold.
SELECT in_flight.job_id, in_flight.token, in_flight.owner, live.claimed_at,
    live.lease_expires_at - :now AS remaining
FROM holdfast_in_flight AS in_flight CROSS JOIN holdfast_live AS live ON live.id = in_flight.job_id
WHERE in_flight.batch_id = :batch_id AND live.state = 'running' AND live.token = in_flight.token

-- name: list_in_flight
SELECT units FROM holdfast_in_flight WHERE batch_id = :batch_id AND job_id <> :job_id

-- name: put_in_flight
INSERT INTO holdfast_in_flight (job_id, batch_id, token, run_number, units, isolated, in_doubt_if_lost, owner)
VALUES (:job_id, :batch_id, :token, :run_number, :units, :isolated, :in_doubt_if_lost, :owner)
ON CONFLICT (job_id) DO UPDATE SET batch_id = excluded.batch_id, token = excluded.token, run_number = excluded.run_number,
    units = excluded.units, isolated = excluded.isolated, in_doubt_if_lost = excluded.in_doubt_if_lost

-- name: delete_in_flight
DELETE FROM holdfast_in_flight WHERE job_id IN (SELECT value FROM json_each(:ids))
RETURNING job_id, batch_id, run_number, units, isolated, in_doubt_if_lost

-- name: get_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, NULL AS label, NULL AS warning, NULL AS error,
    NULL AS data, NULL AS duration_ms
FROM holdfast_unit WHERE batch_id = :batch_id AND key IN (SELECT value FROM json_each(:keys))

-- name: read_pending_units
-- Units that may run, in their order. Those that somebody has in hand are among them.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, NULL AS label, NULL AS warning, NULL AS error,
    NULL AS data, NULL AS duration_ms
FROM holdfast_unit
WHERE batch_id = :batch_id AND state = 'pending'
ORDER BY position LIMIT :limit

-- name: write_units
-- What has ended stays so: a late word about a unit changes no row, and its key does not come back.
INSERT INTO holdfast_unit AS known (batch_id, key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data,
    duration_ms)
SELECT :batch_id, unit.value->>'key', unit.value->>'position', unit.value->>'state', :run_number, unit.value->>'attempts',
    unit.value->>'crashes', unit.value->>'poison_suspect', unit.value->>'label', unit.value->>'warning', unit.value->>'error',
    unit.value->>'data', unit.value->>'duration_ms'
FROM json_each(:unit) AS unit WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET position = excluded.position, state = excluded.state, run_number = excluded.run_number,
    attempts = excluded.attempts, crashes = excluded.crashes, poison_suspect = excluded.poison_suspect, label = excluded.label,
    warning = excluded.warning, error = excluded.error, data = excluded.data, duration_ms = excluded.duration_ms
    WHERE known.state = 'pending' OR known.state = 'failed'
RETURNING key

-- name: insert_pending_units
-- New keys wait; those that wait already are told to be of this run.
INSERT INTO holdfast_unit AS known (batch_id, key, position, state, run_number)
SELECT :batch_id, unit.value->>'key', unit.value->>'position', 'pending', :run_number
FROM json_each(:unit) AS unit WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET run_number = excluded.run_number, position = excluded.position
    WHERE known.state = 'pending'

-- name: retry_units
-- Of these, those that failed wait again; what kills its process stays aside.
UPDATE holdfast_unit SET state = 'pending', run_number = :run_number
WHERE batch_id = :batch_id AND key IN (SELECT value FROM json_each(:keys)) AND state = 'failed' AND crashes < :crashes
RETURNING key

-- name: start_batch_shards
-- From now on the workers run it.
UPDATE holdfast_batch SET options = :options, total = :total WHERE id = :id

-- name: abort_batch
-- Tell all who work on it to stop; the first reason stays.
UPDATE holdfast_batch SET aborted_by = :aborted_by WHERE id = :id AND state = 'running' AND aborted_by IS NULL

-- name: set_batch_total
-- Nothing is left to run, but results wait for their consumer.
UPDATE holdfast_batch SET total = :total WHERE id = :id

-- name: list_batches_without_shards
-- Batches of the workers that nobody works on.
SELECT id FROM holdfast_batch AS batch
WHERE state = 'running' AND options <> '{}'
    AND NOT EXISTS (SELECT 1 FROM holdfast_in_flight AS in_flight WHERE in_flight.batch_id = batch.id)
ORDER BY id LIMIT :limit

-- name: return_lost_units
-- A holder was lost while it had these in hand.
INSERT INTO holdfast_unit AS known (batch_id, key, position, state, run_number, crashes, poison_suspect)
SELECT :batch_id, unit.value->>'key', unit.value->>'position', :state, :run_number, :crashes, true
FROM json_each(:unit) AS unit WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET poison_suspect = true, crashes = known.crashes + excluded.crashes,
    state = CASE WHEN known.state = 'pending' THEN excluded.state ELSE known.state END
    WHERE known.state = 'pending' OR known.state = 'failed' AND known.run_number < excluded.run_number
RETURNING key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data, duration_ms

-- name: add_unit_counts
INSERT INTO holdfast_unit_count AS counted (batch_id, job_id, name, count)
SELECT :batch_id, :job_id, delta.value->>'name', delta.value->>'count' FROM json_each(:delta) AS delta WHERE true
ON CONFLICT (batch_id, job_id, name) DO UPDATE SET count = counted.count + excluded.count

-- name: read_unit_counts
SELECT name, sum(count) AS count FROM holdfast_unit_count WHERE batch_id = :batch_id GROUP BY name

-- name: recount_units
SELECT state AS name, count(*) AS count FROM holdfast_unit WHERE batch_id = :batch_id GROUP BY state

-- name: skip_missing_units
-- Units that waited for a run, and that the run did not meet.
UPDATE holdfast_unit SET state = 'skipped', label = 'gone'
WHERE batch_id = :batch_id AND state = 'pending' AND run_number < :run_number
RETURNING key

-- name: cancel_units
UPDATE holdfast_unit SET state = 'cancelled'
WHERE batch_id = :batch_id AND state = 'pending' AND NOT key IN (SELECT value FROM json_each(:in_flight))
RETURNING key

-- name: reopen_units
-- Failed units wait again, with all their attempts, also those that killed their process. What somebody has in hand
-- runs again already, and is counted as failed until it ends.
UPDATE holdfast_unit SET state = 'pending', crashes = 0, poison_suspect = false
WHERE batch_id = :batch_id AND state = :state AND NOT key IN (SELECT value FROM json_each(:in_flight))
RETURNING key

-- name: list_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data, duration_ms
FROM holdfast_unit WHERE batch_id = :batch_id AND key > :after AND (:state IS NULL OR state = :state)
ORDER BY key LIMIT :limit

-- name: list_units_by_state
-- A page of units that did not simply succeed, found by their state.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data, duration_ms
FROM holdfast_unit
WHERE batch_id = :batch_id AND state = :state AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit

-- name: list_pending_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data, duration_ms
FROM holdfast_unit WHERE batch_id = :batch_id AND state = 'pending' AND position > :after ORDER BY position LIMIT :limit

-- name: list_units_window
-- So many units by key, whatever they are: what a filter looks at for one page.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, substr(error, 1, 600) AS error, NULL AS data, duration_ms
FROM holdfast_unit WHERE batch_id = :batch_id AND key > :after ORDER BY key LIMIT :limit

-- name: list_unit_errors
SELECT key, substr(coalesce(error, ''), 1, 600) AS error FROM holdfast_unit
WHERE batch_id = :batch_id AND state = 'failed' AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit

-- name: list_batch_details
-- Counters of several batches, and who works on them.
SELECT batch_id, 'count' AS part, name, sum(count) AS count, NULL AS since FROM holdfast_unit_count
WHERE batch_id IN (SELECT value FROM json_each(:ids)) GROUP BY batch_id, name
UNION ALL
SELECT in_flight.batch_id, 'holder', in_flight.owner, in_flight.job_id, live.claimed_at
FROM holdfast_in_flight AS in_flight JOIN holdfast_live AS live ON live.id = in_flight.job_id
WHERE in_flight.batch_id IN (SELECT value FROM json_each(:ids)) AND live.state = 'running' AND live.token = in_flight.token

-- name: change_failed_units
-- Of these failed units, some wait again, with all their attempts, or are skipped for good.
UPDATE holdfast_unit SET state = :state, crashes = 0, poison_suspect = 0, label = coalesce(:label, label)
WHERE batch_id = :batch_id AND key IN (SELECT value FROM json_each(:keys)) AND state = :before
RETURNING key

-- name: list_finished_keys
SELECT key FROM holdfast_unit
WHERE batch_id = :batch_id AND key > :after AND (state = 'done' OR state = 'skipped' OR state = 'cancelled')
ORDER BY key LIMIT :limit

-- name: delete_batch
DELETE FROM holdfast_unit WHERE batch_id = :id;
DELETE FROM holdfast_unit_count WHERE batch_id = :id;
DELETE FROM holdfast_inbox WHERE batch_id = :id;
DELETE FROM holdfast_batch WHERE id = :id RETURNING id
