-- Queries: lists of jobs, their history, and the conditions of selectors.

-- fragment: newest_jobs
-- A row without its request is no job: on_lost is that of the request, and never empty. Counts do not read requests.
-- planner: coalesce keeps the outer join; an inner one may begin with all requests.
SELECT * FROM (SELECT listed.* FROM holdfast.live_view AS listed WHERE {where} AND coalesce(listed.on_lost, '') <> ''
        ORDER BY listed.id DESC LIMIT :limit::bigint) AS live_page
    UNION ALL
    SELECT * FROM (SELECT listed.* FROM holdfast.finished_view AS listed WHERE {where} AND coalesce(listed.on_lost, '') <> ''
        ORDER BY listed.id DESC LIMIT :limit::bigint) AS finished_page
    ORDER BY id DESC LIMIT :limit::bigint

-- fragment: jobs_ahead
-- One more than MAX_AHEAD: a larger number is not counted.
-- planner: two ranges of live_ready, each in its order; one condition with OR reads the whole lane.
SELECT count(*) FROM (
        SELECT * FROM (SELECT 1 FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, :queue) AND holdfast.same(kind, :kind)
            AND holdfast.same(reader, :reader) AND priority > :priority
        ORDER BY priority DESC, due_at, id LIMIT 1001) AS higher
        UNION ALL
        SELECT * FROM (SELECT 1 FROM holdfast.live AS live
        WHERE state = 'ready' AND holdfast.same(live.queue, :queue) AND holdfast.same(kind, :kind)
            AND holdfast.same(reader, :reader) AND priority = :priority AND (due_at, id) < (:due_at::timestamptz, :id::bigint)
        ORDER BY due_at, id LIMIT 1001) AS earlier
        LIMIT 1001) AS capped

-- name: list_jobs
-- List jobs, newest first, with all columns.
-- planner: each view is cut to a page before the union; one order over both would sort all jobs.
WITH page AS (
    {newest_jobs}
)
SELECT {job_columns}
FROM page ORDER BY id DESC

-- fragment: job_columns
-- All columns of a job.
id, kind, queue, state, priority, due_at, label, tags, key, payload, parent_id, actor, created_at, attempts,
    max_attempts, crashes, max_crashes, on_lost, retry, after_when, after_failed, token, losses, requested,
    worker, claimed_at, started_at, lease_expires_at, note, finished_at, reason, error, result, progress_done,
    progress_total, progress_message, checkpoint, kind_version, reader, refusals, progress_base, timeout

-- name: list_jobs_brief
-- List jobs for people, without large columns. The payload serves to mask its secrets in the other columns.
WITH page AS (
    {newest_jobs}
)
SELECT id, kind, queue, state, priority, due_at, label, tags, key,
    CASE WHEN length(payload) > 16384 THEN 'null' ELSE payload END AS payload, parent_id, actor,
    created_at, attempts, max_attempts, crashes, max_crashes, on_lost, retry, after_when, after_failed, token,
    losses, requested, worker, claimed_at, started_at, lease_expires_at, note, finished_at, reason,
    substr(error, 1, 300) AS error, NULL AS result,
    progress_done, progress_total, progress_message, NULL AS checkpoint, kind_version, reader, refusals, progress_base, timeout
FROM page ORDER BY id DESC

-- name: list_job_ids
-- List the ids that a selector matches, oldest first.
WITH page AS (
    SELECT * FROM (SELECT listed.id FROM holdfast.live_view AS listed WHERE {where}
        ORDER BY listed.id LIMIT :limit::bigint) AS live_page
    UNION ALL
    SELECT * FROM (SELECT listed.id FROM holdfast.finished_view AS listed WHERE {where}
        ORDER BY listed.id LIMIT :limit::bigint) AS finished_page
    ORDER BY id LIMIT :limit::bigint
)
SELECT id FROM page ORDER BY id

-- name: count_jobs
-- Count the jobs that a selector matches, up to :limit.
WITH page AS (
    SELECT * FROM (SELECT listed.id FROM holdfast.live_view AS listed WHERE {where}
        ORDER BY listed.id DESC LIMIT :limit::bigint) AS live_page
    UNION ALL
    SELECT * FROM (SELECT listed.id FROM holdfast.finished_view AS listed WHERE {where}
        ORDER BY listed.id DESC LIMIT :limit::bigint) AS finished_page
    ORDER BY id DESC LIMIT :limit::bigint
)
SELECT count(*) FROM page

-- name: find_tagged
-- Find the jobs that have one of these tags, up to :limit. A job with two of them comes twice.
SELECT job_id FROM holdfast.job_tag WHERE tag = ANY(:tags::text[]) LIMIT :limit::bigint

-- name: get_job_state
-- Read the state of a job.
SELECT state FROM holdfast.live WHERE id = :id UNION ALL SELECT state FROM holdfast.finished WHERE id = :id

-- name: get_job_key
-- Read the unique key that a job has.
SELECT key FROM holdfast.key WHERE job_id = :id

-- name: list_attempts
-- List the recorded attempts of a job and the workers that ran them.
SELECT attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version, attempt.started_at,
    attempt.finished_at, attempt.reason, attempt.exit_code, attempt.error
FROM holdfast.attempt AS attempt LEFT JOIN holdfast.worker AS worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id ORDER BY attempt.token

-- name: get_worker_host
-- Read where a worker runs or ran.
SELECT host, pid, version FROM holdfast.worker WHERE id = :id

-- name: list_events
-- List the events of a job, oldest first.
SELECT at, name, actor, detail::text FROM holdfast.event WHERE job_id = :id ORDER BY id

-- name: list_job_history
-- Read attempts, worker and events of a job in one answer.
SELECT 'attempt' AS category, attempt.number, attempt.token, attempt.worker, worker.host, worker.pid, worker.version,
    attempt.started_at, attempt.finished_at AS at, attempt.reason AS name, attempt.exit_code, attempt.error,
    NULL AS actor, NULL AS detail
FROM holdfast.attempt AS attempt LEFT JOIN holdfast.worker AS worker ON worker.id = attempt.worker
WHERE attempt.job_id = :id
UNION ALL
SELECT 'worker', 0, 0, id, host, pid, version, started_at, seen_at, NULL, NULL, NULL, NULL, NULL
FROM holdfast.worker WHERE id = :worker
UNION ALL
SELECT 'event', 0, id, NULL, NULL, NULL, NULL, NULL, at, name, NULL, NULL, actor, detail::text
FROM (SELECT id, at, name, actor, detail FROM holdfast.event WHERE job_id = :id
    ORDER BY id DESC LIMIT :limit::bigint) AS latest

-- name: explain_job
-- Read what decides when a job runs, in one row: its queue, the stop switch, and the jobs before it.
SELECT (SELECT holdfast.now()) AS now, queue.name, queue.run_limit AS "limit", queue.worker_limit,
    coalesce(queue.paused, false) AS paused, queue.note,
    (SELECT count(*) FROM holdfast.live AS live
        WHERE live.queue = :queue AND live.lease_expires_at IS NOT NULL) AS running,
    ({jobs_ahead}) AS ahead,
    stop_switch.mode, stop_switch.actor AS stopped_by, stop_switch.note AS stop_note, stop_switch.at AS stopped_at,
    (SELECT seen_at FROM holdfast.worker WHERE id = :worker::text) AS seen_at,
    (SELECT options::text FROM holdfast.kind AS kind WHERE kind.name = :kind) AS options
FROM (SELECT 1) AS single_row LEFT JOIN holdfast.queue AS queue ON queue.name = :queue
LEFT JOIN holdfast.stop_switch AS stop_switch ON true

-- name: list_dependency_edges
-- Walk the dependencies and dependents of a job; each edge comes with the job at its far end.
WITH RECURSIVE up (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE job_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, up.depth + 1
    FROM up JOIN holdfast.dependency AS dependency ON dependency.job_id = up.dependency_id
    WHERE up.depth < :depth::bigint
), down (job_id, dependency_id, depth) AS (
    SELECT job_id, dependency_id, 1 FROM holdfast.dependency WHERE dependency_id = :id
    UNION
    SELECT dependency.job_id, dependency.dependency_id, down.depth + 1
    FROM down JOIN holdfast.dependency AS dependency ON dependency.dependency_id = down.job_id
    WHERE down.depth < :depth::bigint
)
SELECT way, job_id, dependency_id, depth,
    coalesce((SELECT state FROM holdfast.live AS live WHERE live.id = far_id),
        (SELECT state FROM holdfast.finished AS finished WHERE finished.id = far_id)) AS state,
    (SELECT kind FROM holdfast.job AS job WHERE job.id = far_id) AS kind,
    (SELECT label FROM holdfast.job AS job WHERE job.id = far_id) AS label
FROM (
    SELECT * FROM (SELECT 'dependencies' AS way, job_id, dependency_id, depth, dependency_id AS far_id
        FROM up LIMIT :limit::bigint) AS dependencies
    UNION ALL
    SELECT * FROM (SELECT 'dependents', job_id, dependency_id, depth, job_id
        FROM down LIMIT :limit::bigint) AS dependents) AS edges

-- name: by_ids
-- Condition: one of these ids.
listed.id = ANY(:ids::bigint[])

-- name: by_keys
-- Condition: one of these unique keys.
listed.id = ANY(ARRAY(SELECT job.id FROM holdfast.job AS job WHERE job.key = ANY(:keys::text[])))

-- name: newest_of_key
-- Condition: no later job has its kind and unique key.
-- planner: OFFSET keeps this a lookup per job, as in not_superseded.
NOT EXISTS (
    SELECT 1 FROM holdfast.job AS newer
    WHERE newer.key = listed.key AND newer.id > listed.id AND newer.kind = listed.kind LIMIT 1 OFFSET 0)

-- name: by_states
-- Condition: one of these states.
listed.state = ANY(:states::text[])

-- name: by_error
-- Condition: an error that contains a text, in any case.
-- planner: may_have_error is the condition of live_retried and of finished_error, which hold only such jobs.
listed.may_have_error AND strpos(lower(listed.error), lower(:error)) > 0

-- name: since
-- Condition: enqueued at or after.
listed.created_at >= :since

-- name: until
-- Condition: enqueued before.
listed.created_at < :until

-- name: finished_since
-- Condition: finished at or after.
listed.finished_at >= :since

-- name: finished_until
-- Condition: finished before.
listed.finished_at < :until

-- name: find_finished_between
-- Find the jobs of a state that finished in a time, up to :limit.
SELECT id FROM holdfast.finished
WHERE state = :state AND finished_at >= :since AND finished_at < :until
ORDER BY finished_at DESC, id DESC LIMIT :limit::bigint

-- name: find_created_between
-- Find the jobs that were enqueued in a time, up to :limit.
SELECT id FROM holdfast.job WHERE created_at >= :since AND created_at < :until
ORDER BY created_at DESC LIMIT :limit::bigint

-- name: before
-- Condition: older than an id.
listed.id < :before

-- name: after
-- Condition: newer than an id.
listed.id > :after

-- name: only_held
-- Condition: held.
-- planner: a constant state lets the planner use the index of that state and skip the other view.
listed.state = 'held' AND NOT listed.is_finished

-- name: only_waiting
-- Condition: waiting.
listed.state = 'waiting' AND NOT listed.is_finished

-- name: only_scheduled
-- Condition: scheduled.
listed.state = 'scheduled' AND NOT listed.is_finished

-- name: only_ready
-- Condition: ready.
listed.state = 'ready' AND NOT listed.is_finished

-- name: only_running
-- Condition: running.
listed.id = ANY(ARRAY(
    SELECT live.id FROM holdfast.live AS live WHERE live.lease_expires_at IS NOT NULL
    ORDER BY live.queue, live.lease_expires_at)) AND NOT listed.is_finished
