-- fragment: one_minute
-- A duration.
60000000
