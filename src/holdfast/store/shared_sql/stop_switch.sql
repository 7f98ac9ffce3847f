-- The stop switch of the store.

-- name: set_stop_switch
-- Stop the store. A drain does not weaken a stop that is in force.
INSERT INTO holdfast.stop_switch AS existing (single_row, mode, actor, note, at)
VALUES (true, :mode, :actor, :note, (SELECT holdfast.now()))
ON CONFLICT (single_row) DO UPDATE SET mode = excluded.mode, actor = excluded.actor, note = excluded.note,
    at = excluded.at
WHERE existing.mode = 'drain' OR excluded.mode = 'stop'

-- name: clear_stop_switch
-- Let the store start jobs again.
DELETE FROM holdfast.stop_switch RETURNING mode, actor, note, at

-- name: read_stop_switch
-- Read the switch. No row: the store is not stopped.
SELECT mode, actor, note, at FROM holdfast.stop_switch

-- name: list_stopped_jobs
-- List the jobs that an emergency stop holds or has requested to stop. Their notes begin with :prefix.
SELECT id FROM holdfast.live AS live WHERE state = 'held' AND strpos(note, :prefix) = 1
UNION ALL
SELECT id FROM holdfast.live AS live
WHERE lease_expires_at IS NOT NULL AND requested = 'pause' AND strpos(note, :prefix) = 1
