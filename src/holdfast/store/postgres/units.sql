-- name: write_units
-- Write outcomes of units and return the state that each known unit had before. A unit that has finished stays as it is.
-- The caller holds the lock of the batch, so no state changes between the read and the write.
WITH known AS (     -- read from the snapshot before the write
    SELECT key, state, error, earlier_errors::text FROM holdfast.unit
    WHERE batch_id = :batch_id AND key = ANY(:keys::text[])
), written AS ({upsert_units})
SELECT key, state, error, earlier_errors FROM known
