-- Workers: heartbeats and requests.

-- name: list_workers
-- List live workers.
SELECT id, host, pid, version, queues, kinds, started_at, seen_at, autoscaler, slots, requested
FROM holdfast_worker WHERE stopped_at IS NULL AND seen_at > :now - :silence ORDER BY started_at, id

-- name: count_workers
-- Count live workers that serve a kind on a queue.
SELECT count(*) FROM holdfast_worker
WHERE stopped_at IS NULL AND seen_at > :now - :silence
    AND :queue IN (SELECT value FROM json_each(queues)) AND :kind IN (SELECT value FROM json_each(kinds))
