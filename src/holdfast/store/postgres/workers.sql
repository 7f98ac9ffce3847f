-- Workers: heartbeats and requests.

-- name: list_workers
-- List live workers.
SELECT id, host, pid, version, array_to_json(queues)::text AS queues, array_to_json(kinds)::text AS kinds,
    started_at, seen_at, autoscaler::text AS autoscaler, slots, requested
FROM holdfast.worker WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval ORDER BY started_at, id

-- name: count_workers
-- Count live workers that serve a kind on a queue.
SELECT count(*) FROM holdfast.worker
WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval AND :queue = ANY(queues) AND :kind = ANY(kinds)
