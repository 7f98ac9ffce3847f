-- Plans on PostgreSQL.

-- name: lock_schedules
-- The schedules as they are now; those that another planner has locked are left to it.
SELECT name, token, fired FROM holdfast.schedule WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE SKIP LOCKED

-- name: list_open_plans
-- The plans whose jobs were live when somebody looked last, and where those stand now.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM holdfast.plan LEFT JOIN holdfast.live ON live.id = plan.job_id
WHERE plan.open AND plan.schedule = ANY(:schedules::text[])
ORDER BY plan.schedule, plan.scope, plan.time

-- name: close_plans
UPDATE holdfast.plan SET open = false, queued = false
WHERE open AND schedule = ANY(:schedules::text[]) AND job_id = ANY(:ids::bigint[])

-- name: insert_skipped_plans
INSERT INTO holdfast.skipped_plan (schedule, last, first, scope, reason, count, decided_at)
SELECT skipped_plan.schedule, skipped_plan.last, skipped_plan.first, skipped_plan.scope, skipped_plan.reason, skipped_plan.count, holdfast.now()
FROM jsonb_to_recordset(:skip::jsonb)
    AS skipped_plan (schedule text, last timestamptz, first timestamptz, scope text, reason text, count bigint)
ON CONFLICT DO NOTHING

-- name: advance_schedules
UPDATE holdfast.schedule SET cursor = told.cursor, next_at = told.next_at, check_at = told.next_at,
    fired = told.fired, failures = 0, error = NULL, token = schedule.token + 1
FROM jsonb_to_recordset(:advance::jsonb)
    AS told (name text, cursor timestamptz, next_at timestamptz, fired bigint)
WHERE schedule.name = told.name

-- name: list_stuck_plans
-- Plans that wait for one that waits for its retry, or for a person: that one is out of the way.
SELECT dependency.job_id, dependency.dependency_id FROM holdfast.plan
JOIN holdfast.dependency ON dependency.job_id = plan.job_id
JOIN holdfast.live AS mine ON mine.id = plan.job_id AND mine.state = 'waiting'
JOIN holdfast.live AS other ON other.id = dependency.dependency_id
WHERE plan.queued AND (other.state = 'held' OR (other.state = 'scheduled' AND other.attempts > 0))
LIMIT :limit::bigint

-- name: delete_dependencies
DELETE FROM holdfast.dependency
USING jsonb_to_recordset(:dependencies::jsonb) AS gone (job_id bigint, dependency_id bigint)
WHERE dependency.job_id = gone.job_id AND dependency.dependency_id = gone.dependency_id

-- name: unqueue_plans
-- Plans whose turn has come wait for nobody any more.
UPDATE holdfast.plan SET queued = false
WHERE queued AND NOT EXISTS (
    SELECT FROM holdfast.live WHERE live.id = plan.job_id AND live.state IN ('waiting', 'held'))

-- name: get_plan
SELECT plan.schedule, plan.time, plan.scope, plan.origin, plan.job_id, plan.actor, plan.decided_at,
    coalesce(live.state, finished.state) AS state
FROM holdfast.plan
LEFT JOIN holdfast.live ON live.id = plan.job_id
LEFT JOIN holdfast.finished ON finished.id = plan.job_id
WHERE plan.schedule = :schedule AND plan.time = :time AND plan.scope = :scope

-- name: get_skipped_plan
-- The newest decision not to fire the plan of this timestamp.
SELECT schedule, first, last, scope, reason, count, decided_at FROM holdfast.skipped_plan
WHERE schedule = :schedule AND last >= :time AND first <= :time AND scope IN ('', :scope)
ORDER BY decided_at DESC LIMIT 1

-- name: list_plans
SELECT plan.schedule, plan.time, plan.scope, plan.origin, plan.job_id, plan.actor, plan.decided_at,
    coalesce(live.state, finished.state) AS state
FROM holdfast.plan
LEFT JOIN holdfast.live ON live.id = plan.job_id
LEFT JOIN holdfast.finished ON finished.id = plan.job_id
WHERE plan.schedule = :schedule ORDER BY plan.time DESC, plan.scope DESC LIMIT :limit::bigint

-- name: list_skipped_plans
SELECT schedule, first, last, scope, reason, count, decided_at FROM holdfast.skipped_plan
WHERE schedule = :schedule ORDER BY last DESC, first DESC, scope LIMIT :limit::bigint

-- name: list_known_plans
SELECT plan.schedule, plan.time, plan.scope FROM holdfast.plan
JOIN jsonb_to_recordset(:plan::jsonb) AS asked (schedule text, time timestamptz, scope text)
    ON asked.schedule = plan.schedule AND asked.time = plan.time AND asked.scope = plan.scope

-- name: prune_plans
-- Those of live jobs stay. Counted, not joined: as many are looked at as are removed.
WITH old AS (
    SELECT schedule, time, scope FROM holdfast.plan
    WHERE decided_at < (SELECT holdfast.now()) - :age
        AND (SELECT count(*) FROM holdfast.live WHERE live.id = plan.job_id) = 0
    LIMIT :limit::bigint
)
DELETE FROM holdfast.plan USING old
WHERE plan.schedule = old.schedule AND plan.time = old.time AND plan.scope = old.scope
RETURNING plan.job_id

-- name: prune_skipped_plans
WITH old AS (
    SELECT schedule, last, first, scope, reason FROM holdfast.skipped_plan
    WHERE decided_at < (SELECT holdfast.now()) - :age ORDER BY decided_at LIMIT :limit::bigint
)
DELETE FROM holdfast.skipped_plan USING old
WHERE skipped_plan.schedule = old.schedule AND skipped_plan.last = old.last AND skipped_plan.first = old.first AND skipped_plan.scope = old.scope
    AND skipped_plan.reason = old.reason
RETURNING skipped_plan.count
