-- Workers: heartbeats and requests.

-- name: insert_worker
-- Register a worker. Its id is never used again.
INSERT INTO holdfast.worker (id, host, pid, process, version, queues, kinds, build, names, slots, started_at, seen_at)
VALUES (:id, :host, :pid, :process, :version, :queues::text[], :kinds::text[], :build, :names, :slots,
    (SELECT holdfast.now()),
    (SELECT holdfast.now()))

-- name: update_worker_kinds
-- Change the kinds that a worker serves, and with them its build.
UPDATE holdfast.worker SET kinds = :kinds::text[], build = :build WHERE id = :id

-- name: update_worker_names
-- Change the names of a worker.
UPDATE holdfast.worker SET names = :names WHERE id = :id AND names <> :names

-- name: list_worker_names
-- List the names of workers that were seen within :silence, but for those that have just :names. Most workers have the
-- same code, so that this is nothing. With :stopped, workers that have stopped count too.
SELECT DISTINCT names FROM holdfast.worker
WHERE seen_at > (SELECT holdfast.now()) - :silence::interval AND (stopped_at IS NULL OR :stopped) AND names <> :names
ORDER BY names

-- name: record_heartbeat
-- Record a heartbeat and return a request of an operator.
UPDATE holdfast.worker SET seen_at = (SELECT holdfast.now()) WHERE id = :id RETURNING requested

-- name: list_worker_processes
-- List the workers of a host that have not stopped, with the identities of their processes.
SELECT id, process, (SELECT holdfast.now()) - seen_at AS silent_for
FROM holdfast.worker WHERE host = :host AND process IS NOT NULL AND stopped_at IS NULL ORDER BY started_at, id

-- name: delete_worker_process
-- Delete the process of a worker that has exited and holds no lease.
UPDATE holdfast.worker SET process = NULL WHERE id = :id

-- name: request_worker_control
-- Request quiet or stop of a live worker. It reads the request with its next heartbeat.
UPDATE holdfast.worker SET requested = :requested
WHERE id = :id AND stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval RETURNING id

-- name: report_autoscaler
-- Publish the state of a worker's autoscaler. NULL: it has none.
UPDATE holdfast.worker SET autoscaler = :autoscaler::json WHERE id = :id

-- name: record_worker_stop
-- Record the stop of a worker. The row stays, because attempts refer to it.
UPDATE holdfast.worker SET stopped_at = (SELECT holdfast.now()) WHERE id = :id

-- name: list_workers
-- List workers that have not stopped, and were seen within :silence.
SELECT id, host, pid, version, {queues_and_kinds}, started_at, seen_at, autoscaler::text AS autoscaler, slots, requested,
    (SELECT holdfast.now()) - seen_at AS silent_for
FROM holdfast.worker WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval
ORDER BY started_at, id

-- name: list_builds
-- List the builds of live workers and what they serve, the newest first.
SELECT build, {queues_and_kinds} FROM holdfast.worker
WHERE build <> '' AND stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval
ORDER BY started_at DESC, id

-- name: list_serving_workers
-- List the live workers that serve a kind on a queue, with the number of jobs that each of them holds.
SELECT id, host, slots, coalesce(running.jobs, 0) AS busy, requested, autoscaler::text AS autoscaler,
    (SELECT holdfast.now()) - seen_at AS silent_for
FROM holdfast.worker AS worker
LEFT JOIN (SELECT live.worker AS holder, count(*) AS jobs FROM holdfast.live AS live
    WHERE live.lease_expires_at IS NOT NULL GROUP BY live.worker) AS running ON running.holder = worker.id
WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval AND {serves_lane}
ORDER BY started_at, id

-- name: count_workers
-- Count live workers that serve a kind on a queue.
SELECT count(*) FROM holdfast.worker
WHERE stopped_at IS NULL AND seen_at > (SELECT holdfast.now()) - :silence::interval AND {serves_lane}
