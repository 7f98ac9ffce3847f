-- name: lock_stop_switch
-- Nothing to wait for: SQLite has one writer at a time, so no claim is under way.
SELECT 1
