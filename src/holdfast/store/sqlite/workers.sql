-- fragment: serves_lane
-- Whether a worker serves :kind on :queue. * is every queue but those of single processes.
EXISTS (SELECT 1 FROM json_each(queues) AS named WHERE named.value = :queue
        OR (named.value = '*' AND substr(:queue, 1, 9) <> 'holdfast.')) AND :kind IN (SELECT value FROM json_each(kinds))

-- fragment: queues_and_kinds
-- As JSON.
queues, kinds
