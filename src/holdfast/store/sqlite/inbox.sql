-- Results that are handed over on SQLite.

-- name: insert_inbox_results
-- A unit that is run again replaces what it handed over before.
INSERT INTO holdfast_inbox (inbox, batch_id, key, data, available_at, expires_at)
SELECT result.value->>'inbox', :batch_id, result.value->>'key', result.value->>'data', :now, :now + :keep
FROM json_each(:result) AS result WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET inbox = excluded.inbox, data = excluded.data, token = token + 1,
    available_at = excluded.available_at, expires_at = excluded.expires_at

-- name: claim_inbox_results
-- What nobody has taken, or what was taken and not accepted in time.
UPDATE holdfast_inbox SET token = token + 1, available_at = :now + :lease_duration
WHERE id IN (
    SELECT id FROM holdfast_inbox WHERE inbox = :inbox AND available_at <= :now AND expires_at > :now
    ORDER BY available_at, id LIMIT :limit)
RETURNING id, token, batch_id, key, data

-- name: delete_inbox_result
DELETE FROM holdfast_inbox WHERE id = :id AND token = :token RETURNING id

-- name: list_expired_inbox_results
SELECT id, token, batch_id, key FROM holdfast_inbox WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit

-- name: finish_delivered_unit
-- The unit turns when its result has been accepted, refused, or has expired.
UPDATE holdfast_unit SET state = :state, error = :error WHERE batch_id = :batch_id AND key = :key AND state = 'running'
RETURNING label, warning

-- name: cancel_inbox_results
DELETE FROM holdfast_inbox WHERE batch_id = :batch_id;
UPDATE holdfast_unit SET state = 'cancelled' WHERE batch_id = :batch_id AND state = 'running' RETURNING label, warning

-- name: count_inbox_results
SELECT count(*) AS count FROM holdfast_inbox WHERE inbox = :inbox
