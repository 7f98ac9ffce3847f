-- Queues, kinds and workers on PostgreSQL.

-- name: set_queue_limits
-- What is not said stays; a limit of 0 takes the limit away.
INSERT INTO holdfast.queue AS known (name, run_limit, worker_limit)
VALUES (:name, nullif(:run_limit::integer, 0), nullif(:worker_limit::integer, 0))
ON CONFLICT (name) DO UPDATE SET
    run_limit = nullif(coalesce(:run_limit::integer, known.run_limit), 0),
    worker_limit = nullif(coalesce(:worker_limit::integer, known.worker_limit), 0)

-- name: set_queue_scale
INSERT INTO holdfast.queue (name, scale_min, scale_max) VALUES (:name, :least, :most)
ON CONFLICT (name) DO UPDATE SET scale_min = excluded.scale_min, scale_max = excluded.scale_max

-- name: set_queue_paused
INSERT INTO holdfast.queue (name, paused, note) VALUES (:name, :paused, :note)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, note = excluded.note

-- name: get_queue
SELECT name, run_limit AS "limit", worker_limit, paused, note, scale_min, scale_max FROM holdfast.queue WHERE name = :name

-- name: list_queues
SELECT name, run_limit AS "limit", worker_limit, paused, note, scale_min, scale_max FROM holdfast.queue ORDER BY name

-- name: list_ready_queues
-- One step through the index per queue, however many jobs each holds.
WITH RECURSIVE found (name) AS (
    (SELECT queue FROM holdfast.live WHERE state = 'ready' ORDER BY queue, kind LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM holdfast.live WHERE state = 'ready' AND queue > found.name ORDER BY queue, kind LIMIT 1)
    FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL

-- name: get_queue_usage
SELECT queue.name, queue.run_limit AS "limit", queue.worker_limit, running.everywhere AS running,
    running.here AS running_here
FROM holdfast.queue CROSS JOIN LATERAL (
    SELECT count(*) AS everywhere, count(*) FILTER (WHERE live.worker = :worker) AS here
    FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) AS running
WHERE queue.name = :name

-- name: publish_kind
INSERT INTO holdfast.kind (name, options, payload_schema, version, published_at)
VALUES (:name, :options::json, :payload_schema::json, :version, (SELECT holdfast.now()))
ON CONFLICT (name) DO UPDATE SET options = excluded.options, payload_schema = excluded.payload_schema,
    version = excluded.version, published_at = excluded.published_at

-- name: get_kind
SELECT name, options::text, payload_schema::text, version FROM holdfast.kind WHERE name = :name

-- name: list_kinds
SELECT name, options::text, payload_schema::text, version FROM holdfast.kind ORDER BY name LIMIT :limit::bigint

-- name: list_kind_names
SELECT name FROM holdfast.kind ORDER BY name

-- name: insert_worker
-- A worker's id is never used again: a second start is a new worker.
INSERT INTO holdfast.worker (id, host, pid, version, queues, kinds, slots, started_at, seen_at)
VALUES (:id, :host, :pid, :version, :queues::text[], :kinds::text[], :slots, (SELECT holdfast.now()), (SELECT holdfast.now()))

-- name: record_heartbeat
UPDATE holdfast.worker SET seen_at = (SELECT holdfast.now()) WHERE id = :id RETURNING requested

-- name: request_worker_control
-- It hears of it with its next heartbeat.
UPDATE holdfast.worker SET requested = :requested
WHERE id = :id AND stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval
RETURNING id

-- name: report_autoscaler
-- How the worker's autoscaler stands, for those who look; null: it has none.
UPDATE holdfast.worker SET autoscaler = :autoscaler::json WHERE id = :id

-- name: record_worker_stop
-- The row stays: attempts tell by it where they ran.
UPDATE holdfast.worker SET stopped_at = (SELECT holdfast.now()) WHERE id = :id

-- name: list_workers
SELECT id, host, pid, version, array_to_json(queues)::text AS queues, array_to_json(kinds)::text AS kinds,
    started_at, seen_at, autoscaler::text AS autoscaler, slots, requested
FROM holdfast.worker WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval ORDER BY started_at, id

-- name: count_workers
-- Live workers that serve this kind on this queue.
SELECT count(*) FROM holdfast.worker
WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval AND :queue = ANY(queues) AND :kind = ANY(kinds)

-- name: count_queue_depths
-- Ready and running jobs of each queue, counted up to a limit, and how many leases have expired.
SELECT queues.name AS queue,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE state = 'ready' AND queue = queues.name LIMIT :limit::bigint) AS found) AS ready,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE queue = queues.name AND lease_expires_at IS NOT NULL LIMIT :limit::bigint) AS found) AS running,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live WHERE queue = queues.name AND lease_expires_at < (SELECT holdfast.now())
        LIMIT :limit::bigint) AS found) AS expired
FROM unnest(:queues::text[]) AS queues (name)

-- name: read_oldest_ready
-- How long the oldest ready job of each queue has waited: a look at the first of every kind and priority.
WITH RECURSIVE lane (queue, kind, priority) AS (
    SELECT queues.name, kinds.name, (
        SELECT max(priority) FROM holdfast.live
        WHERE state = 'ready' AND live.queue = queues.name AND live.kind = kinds.name)
    FROM unnest(:queues::text[]) AS queues (name) CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast.live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.priority < lane.priority)
    FROM lane WHERE priority IS NOT NULL
)
SELECT queue, (SELECT holdfast.now()) - min((
    SELECT min(due_at) FROM holdfast.live
    WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.priority = lane.priority)) AS age
FROM lane WHERE priority IS NOT NULL GROUP BY queue
