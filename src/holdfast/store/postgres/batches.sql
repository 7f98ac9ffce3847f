-- Batches on PostgreSQL.

-- name: lock_latest_batch
SELECT id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at
FROM holdfast.batch WHERE identity = :identity ORDER BY generation DESC LIMIT 1 FOR UPDATE

-- name: get_latest_batch
SELECT id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at
FROM holdfast.batch WHERE identity = :identity ORDER BY generation DESC LIMIT 1

-- name: lock_batch
-- Whoever takes units of a batch, or gives them back, holds this lock.
SELECT id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at
FROM holdfast.batch WHERE id = :id FOR UPDATE

-- name: get_batch
SELECT id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at
FROM holdfast.batch WHERE id = :id

-- name: list_batches
SELECT id, identity, generation, kind, arguments::text, source, name, state, requested, aborted_by, total, run_number,
    version, inputs::text, code, options::text, actor, created_at, started_at, finished_at
FROM holdfast.batch WHERE id < :before ORDER BY id DESC LIMIT :limit::bigint

-- name: insert_batch
INSERT INTO holdfast.batch (identity, generation, kind, arguments, source, name, state, options, actor, created_at)
VALUES (:identity, :generation, :kind, :arguments::json, :source, :name, 'ready', '{}'::json, :actor,
    (SELECT holdfast.now()))
ON CONFLICT (identity, generation) DO NOTHING
RETURNING id

-- name: start_batch_run
UPDATE holdfast.batch SET state = 'running', run_number = run_number + 1, aborted_by = NULL, finished_at = NULL,
    started_at = coalesce(started_at, (SELECT holdfast.now())), total = coalesce(:total::bigint, total), version = :version,
    inputs = :inputs::json, code = :code, options = '{}'
WHERE id = :id
RETURNING run_number

-- name: finish_batch
UPDATE holdfast.batch SET state = :state, aborted_by = :aborted_by, requested = NULL,
    total = coalesce(:total::bigint, total), finished_at = (SELECT holdfast.now())
WHERE id = :id AND state <> 'cancelled'

-- name: request_batch_control
UPDATE holdfast.batch SET requested = :requested
WHERE id = :id AND state IN ('ready', 'running', 'stopped', 'paused') AND requested IS DISTINCT FROM 'cancel'
RETURNING id

-- name: set_batch_state
UPDATE holdfast.batch SET state = :state, requested = NULL, finished_at = (SELECT holdfast.now()) WHERE id = :id

-- name: reopen_batch
UPDATE holdfast.batch SET state = 'running', requested = NULL, aborted_by = NULL, finished_at = NULL WHERE id = :id

-- name: lock_batch_run
-- A run may write while it holds its lease; the locks keep it that way, and serialise who takes units.
WITH mine AS (
    SELECT id FROM holdfast.live WHERE id = :job_id AND token = :token AND state = 'running' FOR NO KEY UPDATE
)
SELECT requested, aborted_by FROM holdfast.batch WHERE id = :batch_id AND EXISTS (SELECT FROM mine) FOR UPDATE

-- name: check_batch_shared
-- Whether another holder works on the batch, or has written to its ledger. Asked under the lock of the batch, by a
-- statement of its own: one that had to wait for the lock would answer from before.
SELECT EXISTS (
    SELECT FROM holdfast.in_flight WHERE batch_id = :batch_id AND job_id <> :job_id)
    OR EXISTS (
    SELECT FROM holdfast.unit_count WHERE batch_id = :batch_id AND job_id <> :job_id) AS shared

-- name: claim_driver
-- The driver's own job, which no worker knows: it is claimed by whoever made it.
UPDATE holdfast.live SET state = 'running', token = token + 1, worker = :worker, attempts = attempts + 1,
    claimed_at = (SELECT holdfast.now()), started_at = (SELECT holdfast.now()),
    lease_expires_at = (SELECT holdfast.now()) + :lease_duration::interval
WHERE id = :id AND state = 'ready'
RETURNING token

-- name: list_batch_holders
-- Who works on a batch: leases that have not finished, and for how long they still hold.
SELECT in_flight.job_id, in_flight.token, in_flight.owner::text, live.claimed_at,
    live.lease_expires_at - (SELECT holdfast.now()) AS remaining
FROM holdfast.in_flight CROSS JOIN LATERAL (
    SELECT claimed_at, lease_expires_at, state, token FROM holdfast.live WHERE live.id = in_flight.job_id LIMIT 1) AS live
WHERE in_flight.batch_id = :batch_id AND live.state = 'running' AND live.token = in_flight.token

-- name: list_in_flight
SELECT units::text FROM holdfast.in_flight WHERE batch_id = :batch_id AND job_id <> :job_id

-- name: put_in_flight
INSERT INTO holdfast.in_flight AS mine (job_id, batch_id, token, run_number, units, isolated, in_doubt_if_lost, owner)
VALUES (:job_id, :batch_id, :token, :run_number, :units::json, :isolated, :in_doubt_if_lost, :owner::json)
ON CONFLICT (job_id) DO UPDATE SET batch_id = excluded.batch_id, token = excluded.token, run_number = excluded.run_number,
    units = excluded.units, isolated = excluded.isolated, in_doubt_if_lost = excluded.in_doubt_if_lost

-- name: delete_in_flight
DELETE FROM holdfast.in_flight WHERE job_id = ANY(:ids::bigint[])
RETURNING job_id, batch_id, run_number, units::text, isolated, in_doubt_if_lost

-- name: get_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, NULL AS label, NULL AS warning, NULL AS error,
    NULL AS data, NULL::bigint AS duration_ms
FROM holdfast.unit WHERE batch_id = :batch_id AND key = ANY(:keys::text[])

-- name: read_pending_units
-- Units that may run, in their order. Those that somebody has in hand are among them.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, NULL AS label, NULL AS warning, NULL AS error,
    NULL AS data, NULL::bigint AS duration_ms
FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'pending'
ORDER BY position LIMIT :limit::bigint

-- name: write_units
-- What has ended stays so: a late word about a unit changes no row, and its key does not come back.
INSERT INTO holdfast.unit AS known (batch_id, key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data,
    duration_ms)
SELECT :batch_id, key, position, state, :run_number, attempts, crashes, poison_suspect, label, warning, error, data::json, duration_ms
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint, state text, attempts integer, crashes integer,
    poison_suspect boolean, label text, warning text, error text, data text, duration_ms bigint)
ON CONFLICT (batch_id, key) DO UPDATE SET position = excluded.position, state = excluded.state, run_number = excluded.run_number,
    attempts = excluded.attempts, crashes = excluded.crashes, poison_suspect = excluded.poison_suspect, label = excluded.label,
    warning = excluded.warning, error = excluded.error, data = excluded.data, duration_ms = excluded.duration_ms
    WHERE known.state = 'pending' OR known.state = 'failed'
RETURNING key

-- name: insert_pending_units
-- New keys wait; those that wait already are told to be of this run.
INSERT INTO holdfast.unit AS known (batch_id, key, position, state, run_number)
SELECT :batch_id, key, position, 'pending', :run_number
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint)
ON CONFLICT (batch_id, key) DO UPDATE SET run_number = excluded.run_number, position = excluded.position
    WHERE known.state = 'pending'

-- name: retry_units
-- Of these, those that failed wait again; what kills its process stays aside.
UPDATE holdfast.unit SET state = 'pending', run_number = :run_number
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = 'failed' AND crashes < :crashes
RETURNING key

-- name: start_batch_shards
-- From now on the workers run it.
UPDATE holdfast.batch SET options = :options::json, total = :total WHERE id = :id

-- name: abort_batch
-- Tell all who work on it to stop; the first reason stays.
UPDATE holdfast.batch SET aborted_by = :aborted_by WHERE id = :id AND state = 'running' AND aborted_by IS NULL

-- name: set_batch_total
-- Nothing is left to run, but results wait for their consumer.
UPDATE holdfast.batch SET total = :total WHERE id = :id

-- name: list_batches_without_shards
-- Batches of the workers that nobody works on.
SELECT id FROM holdfast.batch
WHERE state = 'running' AND options::text <> '{}'
    AND NOT EXISTS (SELECT FROM holdfast.in_flight WHERE in_flight.batch_id = batch.id)
ORDER BY id LIMIT :limit::bigint

-- name: return_lost_units
-- A holder was lost while it had these in hand.
INSERT INTO holdfast.unit AS known (batch_id, key, position, state, run_number, crashes, poison_suspect)
SELECT :batch_id, key, position, :state, :run_number, :crashes, true
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint)
ON CONFLICT (batch_id, key) DO UPDATE SET poison_suspect = true, crashes = known.crashes + excluded.crashes,
    state = CASE WHEN known.state = 'pending' THEN excluded.state ELSE known.state END
    WHERE known.state = 'pending' OR known.state = 'failed' AND known.run_number < excluded.run_number
RETURNING key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data::text, duration_ms

-- name: add_unit_counts
INSERT INTO holdfast.unit_count AS counted (batch_id, job_id, name, count)
SELECT :batch_id, :job_id, name, count FROM jsonb_to_recordset(:delta::jsonb) AS delta (name text, count bigint)
ON CONFLICT (batch_id, job_id, name) DO UPDATE SET count = counted.count + excluded.count

-- name: read_unit_counts
SELECT name, sum(count)::bigint AS count FROM holdfast.unit_count WHERE batch_id = :batch_id GROUP BY name

-- name: recount_units
SELECT state AS name, count(*) AS count FROM holdfast.unit WHERE batch_id = :batch_id GROUP BY state

-- name: skip_missing_units
-- Units that waited for a run, and that the run did not meet.
UPDATE holdfast.unit SET state = 'skipped', label = 'gone'
WHERE batch_id = :batch_id AND state = 'pending' AND run_number < :run_number
RETURNING key

-- name: cancel_units
UPDATE holdfast.unit SET state = 'cancelled'
WHERE batch_id = :batch_id AND state = 'pending' AND NOT key = ANY(:in_flight::text[])
RETURNING key

-- name: reopen_units
-- Failed units wait again, with all their attempts, also those that killed their process. What somebody has in hand
-- runs again already, and is counted as failed until it ends.
UPDATE holdfast.unit SET state = 'pending', crashes = 0, poison_suspect = false
WHERE batch_id = :batch_id AND state = :state AND NOT key = ANY(:in_flight::text[])
RETURNING key

-- name: list_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data::text, duration_ms
FROM holdfast.unit WHERE batch_id = :batch_id AND key > :after AND (:state::text IS NULL OR state = :state::text)
ORDER BY key LIMIT :limit::bigint

-- name: list_units_by_state
-- A page of units that did not simply succeed, found by their state.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data::text, duration_ms
FROM holdfast.unit
WHERE batch_id = :batch_id AND state = :state AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit::bigint

-- name: list_pending_units
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data::text, duration_ms
FROM holdfast.unit WHERE batch_id = :batch_id AND state = 'pending' AND position > :after::bigint
ORDER BY position LIMIT :limit::bigint

-- name: list_units_window
-- So many units by key, whatever they are: what a filter looks at for one page.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, left(error, 600) AS error, NULL AS data, duration_ms
FROM holdfast.unit WHERE batch_id = :batch_id AND key > :after ORDER BY key LIMIT :limit::bigint

-- name: list_unit_errors
SELECT key, left(coalesce(error, ''), 600) AS error FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'failed' AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit::bigint

-- name: list_batch_details
-- Counters of several batches, and who works on them.
SELECT batch_id, 'count' AS part, name, sum(count)::bigint AS count, NULL::timestamptz AS since FROM holdfast.unit_count
WHERE batch_id = ANY(:ids::bigint[]) GROUP BY batch_id, name
UNION ALL
SELECT in_flight.batch_id, 'holder', in_flight.owner::text, in_flight.job_id, live.claimed_at
FROM holdfast.in_flight CROSS JOIN LATERAL (
    SELECT claimed_at, state, token FROM holdfast.live WHERE live.id = in_flight.job_id LIMIT 1) AS live
WHERE in_flight.batch_id = ANY(:ids::bigint[]) AND live.state = 'running' AND live.token = in_flight.token

-- name: change_failed_units
-- Of these failed units, some wait again, with all their attempts, or are skipped for good.
UPDATE holdfast.unit SET state = :state, crashes = 0, poison_suspect = false, label = coalesce(:label::text, label)
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = :before
RETURNING key

-- name: list_finished_keys
SELECT key FROM holdfast.unit
WHERE batch_id = :batch_id AND key > :after AND (state = 'done' OR state = 'skipped' OR state = 'cancelled')
ORDER BY key LIMIT :limit::bigint

-- name: delete_batch
WITH no_unit AS (DELETE FROM holdfast.unit WHERE batch_id = :id),
no_count AS (DELETE FROM holdfast.unit_count WHERE batch_id = :id),
no_result AS (DELETE FROM holdfast.inbox WHERE batch_id = :id)
DELETE FROM holdfast.batch WHERE id = :id RETURNING id
