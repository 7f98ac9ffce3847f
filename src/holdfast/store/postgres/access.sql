-- fragment: one_minute
-- A duration.
interval '1 minute'
