-- fragment: serves_lane
-- Whether a worker serves :kind on :queue.
:queue = ANY(queues) AND :kind = ANY(kinds)

-- fragment: queues_and_kinds
-- As JSON.
array_to_json(queues)::text AS queues, array_to_json(kinds)::text AS kinds
