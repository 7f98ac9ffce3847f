-- name: lock_stop_switch
-- Wait for running claims. A claim that began before the switch was set has this table locked until its commit.
LOCK TABLE holdfast.stop_switch IN ACCESS EXCLUSIVE MODE
