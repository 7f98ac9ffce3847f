-- Inbox: results that wait for a consumer.

-- name: cancel_inbox_results
-- Delete the results of a batch and cancel their units.
WITH deleted AS (DELETE FROM holdfast.inbox WHERE batch_id = :batch_id)
UPDATE holdfast.unit SET state = 'cancelled' WHERE batch_id = :batch_id AND state = 'running' RETURNING label, warning
