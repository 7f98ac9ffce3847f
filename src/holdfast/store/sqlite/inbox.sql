-- Inbox: results that wait for a consumer.

-- name: cancel_inbox_results
-- Delete the results of a batch and cancel their units.
DELETE FROM holdfast_inbox WHERE batch_id = :batch_id;
UPDATE holdfast_unit SET state = 'cancelled' WHERE batch_id = :batch_id AND state = 'running' RETURNING label, warning
