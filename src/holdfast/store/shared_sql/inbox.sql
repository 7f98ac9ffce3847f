-- Inbox: results that wait for a consumer.

-- name: insert_inbox_results
-- Deliver results. A unit that runs again replaces its earlier result.
INSERT INTO holdfast.inbox AS existing (inbox, batch_id, key, data, available_at, expires_at)
SELECT inbox, :batch_id, key, data::json, (SELECT holdfast.now()), (SELECT holdfast.now()) + :keep
FROM jsonb_to_recordset(:result::jsonb) AS result (inbox text, key text, data text) WHERE true
ON CONFLICT (batch_id, key) DO UPDATE SET inbox = excluded.inbox, data = excluded.data, token = existing.token + 1,
    available_at = excluded.available_at, expires_at = excluded.expires_at

-- name: claim_inbox_results
-- Claim results that are available: new ones, and claimed ones that were not accepted in time.
UPDATE holdfast.inbox SET token = token + 1, available_at = (SELECT holdfast.now()) + :lease_duration
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.inbox
    WHERE inbox = :inbox AND available_at <= (SELECT holdfast.now()) AND expires_at > (SELECT holdfast.now())
    ORDER BY available_at, id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id, token, batch_id, key, data::text

-- name: delete_inbox_result
-- Delete a result that its consumer accepted or refused.
DELETE FROM holdfast.inbox WHERE id = :id AND token = :token RETURNING id

-- name: list_expired_inbox_results
-- List results that no consumer accepted in time.
SELECT id, token, batch_id, key, inbox FROM holdfast.inbox
WHERE {lock_wait} AND expires_at <= (SELECT holdfast.now()) ORDER BY expires_at LIMIT :limit::bigint

-- name: finish_delivered_unit
-- Finish a unit whose result was accepted, refused or expired.
UPDATE holdfast.unit SET state = :state, error = :error WHERE batch_id = :batch_id AND key = :key AND state = 'running'
RETURNING label, warning

-- name: cancel_inbox_results
-- Delete results of a batch and cancel their units.
WITH deleted_results AS (DELETE FROM holdfast.inbox WHERE batch_id = :batch_id AND key = ANY(:keys::text[]))
UPDATE holdfast.unit SET state = 'cancelled'
WHERE batch_id = :batch_id AND key = ANY(:keys::text[]) AND state = 'running' RETURNING label, warning

-- name: count_inbox_results
-- Count the results in an inbox.
SELECT count(*) AS count FROM holdfast.inbox WHERE inbox = :inbox

-- name: list_inboxes
-- List inboxes with their results, counted up to a limit: all, and those that a consumer has. The oldest free result.
WITH RECURSIVE names (inbox) AS (       -- planner: one index look-up per inbox; GROUP BY reads every result
    SELECT min(inbox) FROM holdfast.inbox
    UNION ALL
    SELECT (SELECT min(result.inbox) FROM holdfast.inbox AS result WHERE result.inbox > names.inbox)
    FROM names WHERE names.inbox IS NOT NULL
)
SELECT inbox,
    (SELECT count(*) FROM (     -- planner: without the order, rows of other inboxes are read too
        SELECT 1 AS one FROM holdfast.inbox AS result
        WHERE result.inbox = names.inbox ORDER BY result.available_at LIMIT :limit::bigint) AS known) AS results,
    (SELECT count(*) FROM (
        SELECT 1 AS one FROM holdfast.inbox AS result
        WHERE result.inbox = names.inbox AND result.available_at > (SELECT holdfast.now())
        ORDER BY result.available_at LIMIT :limit::bigint) AS held) AS taken,
    (SELECT min(result.available_at) FROM holdfast.inbox AS result
        WHERE result.inbox = names.inbox AND result.available_at <= (SELECT holdfast.now())) AS free_since
FROM names WHERE inbox IS NOT NULL ORDER BY inbox

-- name: list_inbox_results
-- List the results in an inbox, the longest free first.
SELECT id, token, batch_id, key, data::text, available_at, expires_at, available_at > (SELECT holdfast.now()) AS taken
FROM holdfast.inbox WHERE inbox = :inbox
ORDER BY available_at, id LIMIT :limit::bigint

-- name: get_inbox_results
-- Read results by id.
SELECT id, token, batch_id, key, inbox FROM holdfast.inbox WHERE id = ANY(:ids::bigint[])
