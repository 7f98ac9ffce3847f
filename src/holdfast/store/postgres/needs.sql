-- Dependencies on PostgreSQL.

-- name: ids_by_label
SELECT id FROM holdfast.job WHERE label LIKE :label ORDER BY id

-- name: ids_by_key
SELECT job_id FROM holdfast.key WHERE kind = :kind AND key = :key

-- name: mark_needed
-- Locks the needed rows: whoever settles one of them now waits, and then sees that it is needed.
UPDATE holdfast.live SET needed = true
WHERE id = ANY(ARRAY(SELECT id FROM holdfast.live WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE))
RETURNING id

-- name: states_of
SELECT id, state FROM holdfast.live WHERE id = ANY(:ids::bigint[])
UNION ALL
SELECT id, state FROM holdfast.ended WHERE id = ANY(:ids::bigint[])

-- name: write_needs
INSERT INTO holdfast.need (job_id, need_id)
SELECT * FROM unnest(:need_job_id::bigint[], :need_need_id::bigint[])

-- name: dependents
SELECT DISTINCT job_id FROM holdfast.need WHERE need_id = ANY(:ids::bigint[]) ORDER BY job_id

-- name: waiting_page
SELECT id FROM holdfast.live WHERE state = 'waiting' AND id > :after ORDER BY id LIMIT :limit::bigint

-- name: lock_waiting
SELECT live.id, job.after_when, job.after_failed
FROM holdfast.live JOIN holdfast.job ON job.id = live.id
WHERE live.id = ANY(:ids::bigint[]) AND live.state = 'waiting'
ORDER BY live.id FOR UPDATE OF live

-- name: need_states
SELECT need.job_id, need.need_id, coalesce(live.state, ended.state) AS state
FROM holdfast.need
LEFT JOIN holdfast.live ON live.id = need.need_id
LEFT JOIN holdfast.ended ON ended.id = need.need_id
WHERE need.job_id = ANY(:ids::bigint[])
ORDER BY need.job_id, need.need_id

-- name: wake
UPDATE holdfast.live SET note = NULL,
    state = CASE WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END
WHERE id = ANY(:ids::bigint[]) AND state = 'waiting'

-- name: hold_with_note
UPDATE holdfast.live SET state = 'held', note = held.note
FROM unnest(:held_id::bigint[], :held_note::text[]) AS held (id, note)
WHERE live.id = held.id AND live.state IN ('waiting', 'scheduled', 'ready')
RETURNING live.id

-- name: end_idle
-- Cancel jobs that nobody runs.
WITH gone AS (
    DELETE FROM holdfast.live
    USING unnest(:idle_id::bigint[], :idle_note::text[]) AS idle (id, note)
    WHERE live.id = idle.id AND live.state <> 'running'
    RETURNING live.*, idle.note AS error
), kept AS (
    INSERT INTO holdfast.ended (id, state, queue, kind, priority, due_at, attempts, crashes, token, ended_at, reason, error)
    SELECT id, 'cancelled', queue, kind, priority, due_at, attempts, crashes, token, (SELECT holdfast.now()),
        'cancelled', error
    FROM gone
)
SELECT id, needed FROM gone
