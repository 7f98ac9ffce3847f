-- Units: the ledger of a batch and its counters.

-- fragment: unit_columns
key, position, state, run_number, attempts, crashes, poison_suspect, label, warning, error, data::text, duration_ms,
    last_run, attempted_at, worker, earlier_errors::text

-- fragment: unit_state_columns
-- Of the error only whether there is one.
key, position, state, run_number, attempts, crashes, poison_suspect, NULL AS label, NULL AS warning,
    CASE WHEN error IS NOT NULL THEN '' END AS error, NULL AS data, NULL::bigint AS duration_ms, last_run,
    NULL::timestamptz AS attempted_at, NULL AS worker, NULL AS earlier_errors

-- fragment: done_columns
batch_id, key, position, state, run_number, attempts, duration_ms, attempted_at, worker

-- fragment: upsert_units
-- Columns that no outcome needs may be missing.
INSERT INTO holdfast.unit AS existing (batch_id, key, position, state, run_number, attempts, crashes, poison_suspect,
    label, warning, error, data, duration_ms, last_run, attempted_at, worker)
SELECT :batch_id, key, position, state, :run_number, attempts, coalesce(crashes, 0), coalesce(poison_suspect, false),
    label, warning, error, data::json, duration_ms, :run_number, (SELECT holdfast.now()), :worker
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint, state text, attempts integer, crashes integer,
    poison_suspect boolean, label text, warning text, error text, data text, duration_ms bigint) WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET position = excluded.position, state = excluded.state,
    run_number = excluded.run_number, attempts = excluded.attempts, crashes = excluded.crashes,
    poison_suspect = excluded.poison_suspect, label = excluded.label, warning = excluded.warning,
    error = excluded.error, data = excluded.data, duration_ms = excluded.duration_ms, last_run = excluded.last_run,
    attempted_at = excluded.attempted_at, worker = coalesce(excluded.worker, existing.worker)
    WHERE existing.state = 'pending' OR existing.state = 'failed'

-- fragment: finished_columns
-- The row of a unit that is done at its first attempt, and of which nothing else is known.
state = 'done', run_number = :run_number, attempts = 1, crashes = 0, poison_suspect = false, label = NULL,
    warning = NULL, error = NULL, data = NULL, last_run = :run_number, attempted_at = (SELECT holdfast.now()),
    worker = coalesce(:worker, worker)

-- name: get_units
-- Read the state of units by key.
SELECT {unit_state_columns} FROM holdfast.unit WHERE batch_id = :batch_id AND key = ANY(:keys::text[])

-- name: read_pending_units
-- Read the first pending units: those that no run has begun, in input order, then the others, the longest ago first.
-- Units in flight are among them.
SELECT {unit_state_columns} FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'pending' ORDER BY last_run, position LIMIT :limit::bigint

-- name: read_units_again
-- Read units that an earlier run began and whose keys this run has met, the longest ago first, after a place.
-- planner: each state has an index of its own in this order; one condition on both states would sort all of them.
SELECT * FROM (
    SELECT {unit_state_columns} FROM holdfast.unit
    WHERE batch_id = :batch_id AND state = 'pending' AND last_run > 0 AND last_run < :run_number
        AND (last_run, position, key) > (:last_run::bigint, :position::bigint, :key::text)
        AND run_number = :run_number
    ORDER BY last_run, position, key LIMIT :limit::bigint) AS pending
UNION ALL
SELECT * FROM (
    SELECT {unit_state_columns} FROM holdfast.unit
    WHERE batch_id = :batch_id AND state = 'failed' AND last_run > 0 AND last_run < :run_number
        AND (last_run, position, key) > (:last_run::bigint, :position::bigint, :key::text)
        AND run_number = :run_number AND crashes < :crashes AND :retry_failed::boolean
    ORDER BY last_run, position, key LIMIT :limit::bigint) AS failed
ORDER BY last_run, position, key LIMIT :limit::bigint

-- name: meet_units
-- Record that a run has met the keys of units which an earlier run began. It runs them after all others.
UPDATE holdfast.unit SET run_number = :run_number
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND (state = 'pending' OR state = 'failed')

-- name: begin_units
-- Record that a run began units and could not finish them. Their states and errors stay as they are.
INSERT INTO holdfast.unit AS existing (batch_id, key, position, state, run_number, last_run)
SELECT :batch_id, key, position, 'pending', :run_number, :run_number
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint) WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET last_run = excluded.last_run
    WHERE existing.state = 'pending' OR existing.state = 'failed'

-- name: amend_unit
-- Change what is noted about a unit whose own transaction has finished it.
UPDATE holdfast.unit SET label = :label, warning = :warning, data = :data::json
WHERE batch_id = :batch_id AND key = :key AND (state = 'done' OR state = 'running') RETURNING key

-- name: keep_unit_errors
-- Keep the errors of earlier attempts.
UPDATE holdfast.unit AS unit SET earlier_errors = kept.errors::json
FROM jsonb_to_recordset(:unit::jsonb) AS kept (key text, errors text)
WHERE unit.batch_id = :batch_id AND unit.key = kept.key

-- name: get_unit_notes
-- Read the label and the warning of a finished unit.
SELECT label, warning FROM holdfast.unit
WHERE batch_id = :batch_id AND key = :key AND (state = 'done' OR state = 'running')

-- name: insert_pending_units
-- Add new units as pending and assign the pending ones to this run.
INSERT INTO holdfast.unit AS existing (batch_id, key, position, state, run_number)
SELECT :batch_id, key, position, 'pending', :run_number
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint) WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET run_number = excluded.run_number, position = excluded.position
    WHERE existing.state = 'pending'

-- name: list_unit_notes
-- Read the states of units, with the labels and warnings that the counters have counted.
SELECT state, label, CASE WHEN state = 'done' THEN warning END
FROM holdfast.unit WHERE batch_id = :batch_id AND key = ANY(:keys::text[])

-- name: overrule_units
-- Make finished units pending again, without their results.
UPDATE holdfast.unit SET state = 'pending', run_number = :run_number, label = NULL, warning = NULL, error = NULL,
    data = NULL, duration_ms = NULL
WHERE batch_id = :batch_id AND key = ANY(:keys::text[])

-- name: retry_units
-- Make failed units pending again, except those that crashed too often.
UPDATE holdfast.unit SET state = 'pending', run_number = :run_number
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = 'failed' AND crashes < :crashes
RETURNING key

-- name: return_lost_units
-- Return the units of a lost holder as poison suspects. With the state in_doubt, failed units wait for a person too.
INSERT INTO holdfast.unit AS existing (batch_id, key, position, state, run_number, crashes, poison_suspect, last_run)
SELECT :batch_id, key, position, :state, :run_number, :crashes, true, :run_number
FROM jsonb_to_recordset(:unit::jsonb) AS unit (key text, position bigint) WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET poison_suspect = true, crashes = existing.crashes + excluded.crashes,
    last_run = excluded.last_run,
    state = CASE WHEN existing.state = 'failed' AND excluded.state = 'pending' THEN 'failed' ELSE excluded.state END
    WHERE existing.state = 'pending' OR existing.state = 'failed' AND existing.last_run < excluded.last_run
RETURNING {unit_columns}

-- name: skip_missing_units
-- Skip pending units that are no longer in the input.
UPDATE holdfast.unit SET state = 'skipped', label = 'gone'
WHERE batch_id = :batch_id AND state = 'pending' AND run_number < :run_number RETURNING key

-- name: skip_outdated_units
-- Skip pending units that no run since an earlier one has met.
UPDATE holdfast.unit SET state = 'skipped', label = 'gone'
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = 'pending' AND run_number < :run_number
RETURNING key

-- name: count_pending_units
-- Count the pending units of a batch.
SELECT count(*) AS count FROM holdfast.unit WHERE batch_id = :batch_id AND state = 'pending'

-- name: list_pending_keys
-- List the keys of pending units in the order in which they run, after a place.
SELECT last_run, position, key FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'pending'
    AND (last_run, position, key) > (:last_run::bigint, :position::bigint, :key::text)
ORDER BY last_run, position, key LIMIT :limit::bigint

-- name: list_unit_keys
-- List the keys of units of one state other than done and pending, after a key.
SELECT key FROM holdfast.unit
WHERE batch_id = :batch_id AND state = :state AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit::bigint

-- name: cancel_units
-- Cancel pending units, except those in flight.
UPDATE holdfast.unit SET state = 'cancelled'
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = 'pending' AND NOT key = ANY(:in_flight::text[])
RETURNING key

-- name: reopen_units
-- Make units pending again with all attempts. A failed one that was in flight in a lost run still runs alone, after the
-- verifier; about one in doubt a person has decided.
UPDATE holdfast.unit SET state = 'pending', crashes = 0, poison_suspect = poison_suspect AND state = 'failed'
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = :state RETURNING key

-- name: change_failed_units
-- Retry or skip chosen units that failed, as in reopen_units.
UPDATE holdfast.unit SET state = :state, crashes = 0, poison_suspect = poison_suspect AND state = 'failed',
    label = coalesce(:label::text, label)
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = :before RETURNING key

-- fragment: upsert_counts
INSERT INTO holdfast.unit_count AS existing (batch_id, job_id, name, count)
SELECT :batch_id, :job_id, name, count
FROM jsonb_to_recordset(:delta::jsonb) AS delta (name text, count bigint) WHERE true
ON CONFLICT (batch_id, job_id, name) DO UPDATE SET count = existing.count + excluded.count

-- name: add_unit_counts
-- Add to the counters of one holder.
{upsert_counts}

-- name: read_unit_counts
-- Read the counters of a batch. Only the labels with the most units are read by name; other_labels counts the others.
WITH summed AS (
    SELECT name, sum(count)::bigint AS count FROM holdfast.unit_count WHERE batch_id = :batch_id GROUP BY name
), ranked AS (  -- counters that are not of labels are few, so that all of them are among the first
    SELECT name, count,
        row_number() OVER (PARTITION BY substr(name, 1, 6) = 'label:' ORDER BY count DESC, name) AS place
    FROM summed WHERE count <> 0
)
SELECT name, count FROM ranked WHERE place <= :labels::bigint
UNION ALL SELECT 'other_labels', count(*) FROM ranked WHERE place > :labels::bigint

-- name: recount_units
-- Count the units of a batch by state, from the ledger itself.
SELECT state AS name, count(*) AS count FROM holdfast.unit WHERE batch_id = :batch_id GROUP BY state

-- name: list_units
-- List units by key, of one state or all.
SELECT {unit_columns}
FROM holdfast.unit WHERE batch_id = :batch_id AND key > :after AND (:state::text IS NULL OR state = :state::text)
ORDER BY key LIMIT :limit::bigint

-- name: list_units_by_state
-- List units by key, of one state other than done and pending.
SELECT {unit_columns} FROM holdfast.unit
WHERE batch_id = :batch_id AND state = :state AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit::bigint

-- name: list_pending_units
-- List pending units in the order in which they run.
SELECT {unit_columns}
FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'pending' AND (last_run, position) > (:last_run::bigint, :position::bigint)
ORDER BY last_run, position LIMIT :limit::bigint

-- name: list_units_window
-- List units by key without their data, as the window of a filter.
SELECT key, position, state, run_number, attempts, crashes, poison_suspect, label, warning,
    substr(error, 1, 600) AS error, NULL AS data, duration_ms, last_run, attempted_at, worker, earlier_errors::text
FROM holdfast.unit WHERE batch_id = :batch_id AND key > :after ORDER BY key LIMIT :limit::bigint

-- name: list_unit_errors
-- List the errors of failed units by key.
SELECT key, substr(coalesce(error, ''), 1, 600) AS error FROM holdfast.unit
WHERE batch_id = :batch_id AND state = 'failed' AND state <> 'done' AND state <> 'pending' AND key > :after
ORDER BY key LIMIT :limit::bigint

-- name: list_finished_keys
-- List the keys of units that need no run any more.
SELECT key FROM holdfast.unit
WHERE batch_id = :batch_id AND key > :after AND (state = 'done' OR state = 'skipped' OR state = 'cancelled')
ORDER BY key LIMIT :limit::bigint
