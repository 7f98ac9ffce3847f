-- name: write_units
-- Write outcomes of units and return the state that each known unit had before. A unit that has finished stays as it is.
SELECT key, state, error, earlier_errors FROM holdfast_unit
WHERE batch_id = :batch_id AND key IN (SELECT value FROM json_each(:keys));
{upsert_units}
