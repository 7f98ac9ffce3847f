-- Results that are handed over on SQLite.

-- name: hand_over
-- A unit that is run again replaces what it handed over before.
INSERT INTO holdfast_inbox (inbox, batch_id, key, data, free_at, expires_at)
SELECT result.value->>'inbox', :batch_id, result.value->>'key', result.value->>'data', :now, :now + :keep
FROM json_each(:result) AS result WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET inbox = excluded.inbox, data = excluded.data, token = token + 1,
    free_at = excluded.free_at, expires_at = excluded.expires_at

-- name: take_results
-- What nobody has taken, or what was taken and not accepted in time.
UPDATE holdfast_inbox SET token = token + 1, free_at = :now + :lease_duration
WHERE id IN (
    SELECT id FROM holdfast_inbox WHERE inbox = :inbox AND free_at <= :now AND expires_at > :now
    ORDER BY free_at, id LIMIT :limit)
RETURNING id, token, batch_id, key, data

-- name: drop_result
DELETE FROM holdfast_inbox WHERE id = :id AND token = :token RETURNING id

-- name: expired_results
SELECT id, token, batch_id, key FROM holdfast_inbox WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit

-- name: end_result
-- The unit turns when its result has been accepted, refused, or has expired.
UPDATE holdfast_unit SET state = :state, error = :error WHERE batch_id = :batch_id AND key = :key AND state = 'running'
RETURNING label, warning

-- name: cancel_results
DELETE FROM holdfast_inbox WHERE batch_id = :batch_id;
UPDATE holdfast_unit SET state = 'cancelled' WHERE batch_id = :batch_id AND state = 'running' RETURNING label, warning

-- name: count_results
SELECT count(*) AS n FROM holdfast_inbox WHERE inbox = :inbox
