-- name: lock_stop_switch
-- Nothing to wait for: SQLite has one writer at a time, so no claim is running.
SELECT 1
