-- Results that are handed over on PostgreSQL.

-- name: insert_inbox_results
-- A unit that is run again replaces what it handed over before.
INSERT INTO holdfast.inbox AS known (inbox, batch_id, key, data, available_at, expires_at)
SELECT result.inbox, :batch_id, result.key, result.data::json, (SELECT holdfast.now()), (SELECT holdfast.now()) + :keep
FROM jsonb_to_recordset(:result::jsonb) AS result (inbox text, key text, data text)
ON CONFLICT (batch_id, key) DO UPDATE SET inbox = excluded.inbox, data = excluded.data, token = known.token + 1,
    available_at = excluded.available_at, expires_at = excluded.expires_at

-- name: claim_inbox_results
-- What nobody has taken, or what was taken and not accepted in time.
WITH free AS (
    SELECT id FROM holdfast.inbox
    WHERE inbox = :inbox AND available_at <= (SELECT holdfast.now()) AND expires_at > (SELECT holdfast.now())
    ORDER BY available_at, id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.inbox AS result SET token = token + 1, available_at = (SELECT holdfast.now()) + :lease_duration
FROM free WHERE result.id = free.id
RETURNING result.id, token, batch_id, key, data::text

-- name: delete_inbox_result
DELETE FROM holdfast.inbox WHERE id = :id AND token = :token RETURNING id

-- name: list_expired_inbox_results
SELECT id, token, batch_id, key FROM holdfast.inbox
WHERE expires_at <= (SELECT holdfast.now()) ORDER BY expires_at LIMIT :limit::bigint

-- name: finish_delivered_unit
-- The unit turns when its result has been accepted, refused, or has expired.
UPDATE holdfast.unit SET state = :state, error = :error WHERE batch_id = :batch_id AND key = :key AND state = 'running'
RETURNING label, warning

-- name: cancel_inbox_results
WITH gone AS (DELETE FROM holdfast.inbox WHERE batch_id = :batch_id)
UPDATE holdfast.unit SET state = 'cancelled' WHERE batch_id = :batch_id AND state = 'running' RETURNING label, warning

-- name: count_inbox_results
SELECT count(*) AS count FROM holdfast.inbox WHERE inbox = :inbox
