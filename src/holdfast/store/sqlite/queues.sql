-- Queues, kinds and workers on SQLite.

-- name: set_queue_limits
-- What is not said stays; a limit of 0 takes the limit away.
INSERT INTO holdfast_queue (name, run_limit, worker_limit)
VALUES (:name, nullif(:run_limit, 0), nullif(:worker_limit, 0))
ON CONFLICT (name) DO UPDATE SET
    run_limit = nullif(coalesce(:run_limit, run_limit), 0),
    worker_limit = nullif(coalesce(:worker_limit, worker_limit), 0)

-- name: set_queue_scale
INSERT INTO holdfast_queue (name, scale_min, scale_max) VALUES (:name, :least, :most)
ON CONFLICT (name) DO UPDATE SET scale_min = excluded.scale_min, scale_max = excluded.scale_max

-- name: set_queue_paused
INSERT INTO holdfast_queue (name, paused, note) VALUES (:name, :paused, :note)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, note = excluded.note

-- name: get_queue
SELECT name, run_limit AS "limit", worker_limit, paused, note, scale_min, scale_max FROM holdfast_queue WHERE name = :name

-- name: list_queues
SELECT name, run_limit AS "limit", worker_limit, paused, note, scale_min, scale_max FROM holdfast_queue ORDER BY name

-- name: list_ready_queues
-- One step through the index per queue, however many jobs each holds.
WITH RECURSIVE found (name) AS (
    SELECT min(queue) FROM holdfast_live WHERE state = 'ready'
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_live WHERE state = 'ready' AND queue > found.name)
    FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL

-- name: get_queue_usage
SELECT queue.name, queue.run_limit AS "limit", queue.worker_limit, count(live.id) AS running,
    count(live.id) FILTER (WHERE live.worker = :worker) AS running_here
FROM holdfast_queue AS queue
LEFT JOIN holdfast_live AS live ON live.queue = queue.name AND live.lease_expires_at IS NOT NULL
WHERE queue.name = :name GROUP BY queue.name

-- name: publish_kind
INSERT INTO holdfast_kind (name, options, payload_schema, version, published_at)
VALUES (:name, :options, :payload_schema, :version, :now)
ON CONFLICT (name) DO UPDATE SET options = excluded.options, payload_schema = excluded.payload_schema,
    version = excluded.version, published_at = excluded.published_at

-- name: get_kind
SELECT name, options, payload_schema, version FROM holdfast_kind WHERE name = :name

-- name: list_kinds
SELECT name, options, payload_schema, version FROM holdfast_kind ORDER BY name LIMIT :limit

-- name: list_kind_names
SELECT name FROM holdfast_kind ORDER BY name

-- name: insert_worker
-- A worker's id is never used again: a second start is a new worker.
INSERT INTO holdfast_worker (id, host, pid, version, queues, kinds, slots, started_at, seen_at)
VALUES (:id, :host, :pid, :version, :queues, :kinds, :slots, :now, :now)

-- name: record_heartbeat
UPDATE holdfast_worker SET seen_at = :now WHERE id = :id RETURNING requested

-- name: request_worker_control
-- It hears of it with its next heartbeat.
UPDATE holdfast_worker SET requested = :requested WHERE id = :id AND stopped_at IS NULL AND seen_at > :now - :silence
RETURNING id

-- name: report_autoscaler
-- How the worker's autoscaler stands, for those who look; null: it has none.
UPDATE holdfast_worker SET autoscaler = :autoscaler WHERE id = :id

-- name: record_worker_stop
-- The row stays: attempts tell by it where they ran.
UPDATE holdfast_worker SET stopped_at = :now WHERE id = :id

-- name: list_workers
SELECT id, host, pid, version, queues, kinds, started_at, seen_at, autoscaler, slots, requested
FROM holdfast_worker WHERE stopped_at IS NULL AND seen_at > :now - :silence ORDER BY started_at, id

-- name: count_workers
-- Live workers that serve this kind on this queue.
SELECT count(*) FROM holdfast_worker
WHERE stopped_at IS NULL AND seen_at > :now - :silence
    AND :queue IN (SELECT value FROM json_each(queues)) AND :kind IN (SELECT value FROM json_each(kinds))

-- name: count_queue_depths
-- Ready and running jobs of each queue, counted up to a limit, and how many leases have expired.
SELECT queues.value AS queue,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live WHERE state = 'ready' AND live.queue = queues.value LIMIT :limit)) AS ready,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE live.queue = queues.value AND live.lease_expires_at IS NOT NULL LIMIT :limit)) AS running,
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_live AS live
        WHERE live.queue = queues.value AND live.lease_expires_at < :now LIMIT :limit)) AS expired
FROM json_each(:queues) AS queues

-- name: read_oldest_ready
-- How long the oldest ready job of each queue has waited: a look at the first of every kind and priority.
WITH RECURSIVE lane (queue, kind, priority) AS (
    SELECT queues.value, kinds.value, (
        SELECT max(priority) FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = queues.value AND live.kind = kinds.value)
    FROM json_each(:queues) AS queues CROSS JOIN json_each(:kinds) AS kinds
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.priority < lane.priority)
    FROM lane WHERE priority IS NOT NULL
)
SELECT queue, :now - min((
    SELECT min(due_at) FROM holdfast_live AS live
    WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.priority = lane.priority)) AS age
FROM lane WHERE priority IS NOT NULL GROUP BY queue
