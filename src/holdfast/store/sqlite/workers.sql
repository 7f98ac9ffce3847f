-- fragment: serves_lane
-- Whether a worker serves :kind on :queue.
:queue IN (SELECT value FROM json_each(queues)) AND :kind IN (SELECT value FROM json_each(kinds))

-- fragment: queues_and_kinds
-- As JSON.
queues, kinds
