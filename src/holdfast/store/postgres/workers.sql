-- fragment: serves_lane
-- Whether a worker serves :kind on :queue. * is every queue but those of single processes.
(:queue = ANY(queues) OR ('*' = ANY(queues) AND left(:queue, 9) <> 'holdfast.')) AND :kind = ANY(kinds)

-- fragment: queues_and_kinds
-- As JSON.
array_to_json(queues)::text AS queues, array_to_json(kinds)::text AS kinds
