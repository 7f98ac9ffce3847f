-- name: write_units
-- Write outcomes of units and return the state that each known unit had before. A unit that has finished stays as it is.
-- The caller holds the lock of the batch, so no state changes between the read and the write.
WITH known AS (     -- read from the snapshot before the write
    SELECT key, state, error, earlier_errors::text FROM holdfast.unit
    WHERE batch_id = :batch_id AND key = ANY(:keys::text[])
), written AS ({upsert_units})
SELECT key, state, error, earlier_errors FROM known

-- name: finish_units
-- Finish pending units without an error, at their first attempt, and return their keys. It takes half the time of
-- write_units. The caller holds the lock of the batch.
UPDATE holdfast.unit SET {finished_columns},
    -- planner: a subquery is evaluated once, a bare parameter for every row.
    duration_ms = ((SELECT :durations::jsonb) ->> key)::bigint
-- planner: LIKE keeps the index of pending units out, which would read all of them.
WHERE batch_id = :batch_id AND key = ANY(ARRAY(SELECT jsonb_object_keys(:durations::jsonb)))
    AND state LIKE 'pending' AND error IS NULL
RETURNING key

-- name: insert_done_units
-- Add units that are done at their first attempt, with one duration and with places that follow each other.
INSERT INTO holdfast.unit ({done_columns})
SELECT :batch_id, key, :position + place - 1, 'done', :run_number, 1, :duration_ms, (SELECT holdfast.now()), :worker
FROM json_array_elements_text(:keys::json) WITH ORDINALITY AS unit (key, place)
