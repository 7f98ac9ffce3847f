-- name: limit_lock_wait
-- Limit the waits for locks in this transaction.
SELECT set_config('lock_timeout', '2s', true)

-- name: lock_stop_switch
-- Wait for the claims under way. A claim that began before the switch was set has this table locked until its commit.
LOCK TABLE holdfast.stop_switch IN ACCESS EXCLUSIVE MODE
