-- Queues and kinds.

-- fragment: queue_columns
name, run_limit AS "limit", worker_limit, paused, note, scale_min, scale_max

-- fragment: kind_columns
name, options::text, payload_schema::text, version

-- name: set_queue_limits
-- Set limits of a queue. NULL keeps a limit, 0 removes it. No row comes back if nothing changes.
INSERT INTO holdfast.queue AS existing (name, run_limit, worker_limit)
VALUES (:name, nullif(:run_limit::integer, 0), nullif(:worker_limit::integer, 0))
ON CONFLICT (name) DO UPDATE SET
    run_limit = nullif(coalesce(:run_limit::integer, existing.run_limit), 0),
    worker_limit = nullif(coalesce(:worker_limit::integer, existing.worker_limit), 0)
WHERE existing.run_limit IS DISTINCT FROM nullif(coalesce(:run_limit::integer, existing.run_limit), 0)
    OR existing.worker_limit IS DISTINCT FROM nullif(coalesce(:worker_limit::integer, existing.worker_limit), 0)
RETURNING name

-- name: set_queue_scale
-- Set the bounds of the autoscaler. No row comes back if the queue has them already.
INSERT INTO holdfast.queue AS existing (name, scale_min, scale_max) VALUES (:name, :least, :most)
ON CONFLICT (name) DO UPDATE SET scale_min = excluded.scale_min, scale_max = excluded.scale_max
WHERE existing.scale_min IS DISTINCT FROM excluded.scale_min OR existing.scale_max IS DISTINCT FROM excluded.scale_max
RETURNING name

-- name: pause_queue
-- Pause a queue. No row comes back if it is paused already, with the same note.
INSERT INTO holdfast.queue AS existing (name, paused, note) VALUES (:name, true, :note)
ON CONFLICT (name) DO UPDATE SET paused = true, note = excluded.note
WHERE NOT existing.paused OR existing.note IS DISTINCT FROM excluded.note RETURNING name

-- name: resume_queue
-- Resume a queue. No row comes back if it is not paused.
UPDATE holdfast.queue SET paused = false, note = NULL WHERE name = :name AND paused RETURNING name

-- name: delete_queue
-- Delete the settings of a queue without live jobs.
DELETE FROM holdfast.queue WHERE name = :name
    AND NOT EXISTS (SELECT 1 FROM holdfast.live AS live WHERE holdfast.same(live.queue, :name) AND state = 'ready')
    AND NOT EXISTS (SELECT 1 FROM holdfast.live AS live WHERE live.queue = :name AND lease_expires_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM holdfast.live AS live
        WHERE live.queue = :name AND substr(state, 1, 1) <> 'r') RETURNING name

-- name: list_paused_queues
-- List which of these queues are paused.
SELECT name FROM holdfast.queue WHERE name = ANY(:queues::text[]) AND paused

-- name: get_queue
-- Read the settings of a queue.
SELECT {queue_columns} FROM holdfast.queue WHERE name = :name

-- name: list_queues
-- List the settings of all queues.
SELECT {queue_columns} FROM holdfast.queue ORDER BY name

-- name: count_queue_depths
-- Count ready and running jobs and expired leases per queue, each up to :limit.
SELECT queues.value AS queue,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live WHERE state = 'ready' AND holdfast.same(live.queue, queues.value)
        LIMIT :limit::bigint) AS capped) AS ready,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live WHERE live.queue = queues.value AND live.lease_expires_at IS NOT NULL
        LIMIT :limit::bigint) AS capped) AS running,
    (SELECT count(*) FROM (
        SELECT FROM holdfast.live AS live WHERE live.queue = queues.value
            AND live.lease_expires_at < (SELECT holdfast.now()) LIMIT :limit::bigint) AS capped) AS expired
FROM unnest(:queues::text[]) AS queues (value)

-- name: read_oldest_ready
-- Read the age of the oldest ready job per queue: the first of each kind and priority. A kind can have as many
-- priorities as jobs, so only the 100 highest and the 100 lowest are read. The lowest ones wait longest. Jobs that only
-- one build may claim do not count.
WITH RECURSIVE highest (queue, kind, priority, step) AS (
    SELECT queues.value, kinds.value, (
        SELECT max(priority) FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, queues.value) AND holdfast.same(live.kind, kinds.value)
            AND holdfast.same(live.reader, '')), 1
    FROM unnest(:queues::text[]) AS queues (value) CROSS JOIN unnest(:kinds::text[]) AS kinds (value)
    UNION ALL
    SELECT queue, kind, (
        SELECT max(live.priority) FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, highest.queue) AND holdfast.same(live.kind, highest.kind)
            AND holdfast.same(live.reader, '') AND live.priority < highest.priority), step + 1
    FROM highest WHERE priority IS NOT NULL AND step < 100
), lowest (queue, kind, priority, step) AS (        -- only where there are more than 100
    SELECT queue, kind, (
        SELECT min(live.priority) FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, highest.queue) AND holdfast.same(live.kind, highest.kind)
            AND holdfast.same(live.reader, '')), 1
    FROM highest WHERE step = 100 AND priority IS NOT NULL
    UNION ALL
    SELECT queue, kind, (
        SELECT min(live.priority) FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, lowest.queue) AND holdfast.same(live.kind, lowest.kind)
            AND holdfast.same(live.reader, '') AND live.priority > lowest.priority), step + 1
    FROM lowest WHERE priority IS NOT NULL AND step < 100
)
SELECT queue, (SELECT holdfast.now()) - min((
    SELECT min(due_at) FROM holdfast.live AS live
    WHERE state = 'ready' AND holdfast.same(live.queue, lane.queue) AND holdfast.same(live.kind, lane.kind)
        AND holdfast.same(live.reader, '') AND live.priority = lane.priority)) AS age
FROM (SELECT queue, kind, priority FROM highest UNION ALL SELECT queue, kind, priority FROM lowest) AS lane
WHERE priority IS NOT NULL GROUP BY queue

-- name: publish_kind
-- Publish the options and the payload schema of a kind. An older version never replaces a newer one. A trigger keeps its
-- secret fields; on PostgreSQL another one leaves the kind as it is if a producer publishes it.
INSERT INTO holdfast.kind AS existing (name, options, payload_schema, version, published_at)
VALUES (:name, :options::json, :payload_schema::json, :version, (SELECT holdfast.now()))
ON CONFLICT (name) DO UPDATE SET options = excluded.options, payload_schema = excluded.payload_schema,
    version = excluded.version, published_at = excluded.published_at, provisional = excluded.provisional
WHERE existing.version <= excluded.version OR existing.provisional

-- name: get_kind
-- Read a kind.
SELECT {kind_columns} FROM holdfast.kind WHERE name = :name

-- name: get_fresh_kind
-- Read a kind, unless it was published before the given age.
SELECT {kind_columns} FROM holdfast.kind WHERE name = :name AND published_at > (SELECT holdfast.now()) - :age::interval

-- name: list_kinds
-- List kinds.
SELECT {kind_columns} FROM holdfast.kind ORDER BY name LIMIT :limit::bigint

-- name: list_kind_options
-- List the names and the options of all kinds.
SELECT name, options::text FROM holdfast.kind ORDER BY name

-- name: list_masked_kinds
-- List the options of all kinds, and the secret fields of all that ever were.
SELECT name, options::text, NULL AS secret FROM holdfast.kind
UNION ALL SELECT kind, NULL, name FROM holdfast.secret_field ORDER BY 1, 3

-- name: list_secret_fields
-- List the fields that views mask, by kind.
SELECT kind, name FROM holdfast.secret_field ORDER BY kind, name

-- name: delete_secret_field
-- Show a field again.
DELETE FROM holdfast.secret_field WHERE kind = :kind AND name = :name RETURNING kind
