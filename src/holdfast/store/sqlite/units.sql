-- name: write_units
-- Write outcomes of units and return the state that each known unit had before. A unit that has finished stays as it is.
SELECT key, state, error, earlier_errors FROM holdfast_unit
WHERE batch_id = :batch_id AND key IN (SELECT value FROM json_each(:keys));
{upsert_units}

-- name: finish_units
-- Finish pending units without an error, at their first attempt, and return their keys.
UPDATE holdfast_unit SET {finished_columns}, duration_ms = outcome.value
-- planner: a batch_id of the subquery, which LIMIT keeps whole, makes each unit a primary-key lookup. With the
-- parameter, SQLite reads all units of the batch.
FROM (SELECT :batch_id AS batch_id, key, value FROM json_each(:durations) LIMIT -1) AS outcome
WHERE holdfast_unit.batch_id = outcome.batch_id AND holdfast_unit.key = outcome.key
    AND state = 'pending' AND error IS NULL
RETURNING holdfast_unit.key

-- name: insert_done_units
-- Add units that are done at their first attempt, with one duration and with places that follow each other.
INSERT INTO holdfast_unit ({done_columns})
SELECT :batch_id, value, :position + key, 'done', :run_number, 1, :duration_ms, :now, :worker FROM json_each(:keys)
