-- Plans on SQLite.

-- name: lock_schedules
-- The schedules as they are now.
SELECT name, token, fired FROM holdfast_schedule WHERE name IN (SELECT value FROM json_each(:names))

-- name: list_open_plans
-- The plans whose jobs were live when somebody looked last, and where those stand now.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM json_each(:schedules) AS asked
CROSS JOIN holdfast_plan AS plan ON plan.schedule = asked.value AND plan.open
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
ORDER BY plan.schedule, plan.scope, plan.time

-- name: close_plans
UPDATE holdfast_plan SET open = 0, queued = 0
WHERE open AND schedule IN (SELECT value FROM json_each(:schedules)) AND job_id IN (SELECT value FROM json_each(:ids))

-- name: insert_skipped_plans
INSERT INTO holdfast_skipped_plan (schedule, last, first, scope, reason, count, decided_at)
SELECT skipped_plan.value->>'schedule', skipped_plan.value->>'last', skipped_plan.value->>'first', skipped_plan.value->>'scope',
    skipped_plan.value->>'reason', skipped_plan.value->>'count', :now
FROM json_each(:skip) AS skipped_plan WHERE true
ON CONFLICT DO NOTHING

-- name: advance_schedules
UPDATE holdfast_schedule SET cursor = told.value->>'cursor', next_at = told.value->>'next_at',
    check_at = told.value->>'next_at', fired = told.value->>'fired', failures = 0, error = NULL, token = token + 1
FROM json_each(:advance) AS told WHERE name = told.value->>'name'

-- name: list_stuck_plans
-- Plans that wait for one that waits for its retry, or for a person: that one is out of the way.
SELECT dependency.job_id, dependency.dependency_id FROM holdfast_plan AS plan
JOIN holdfast_dependency AS dependency ON dependency.job_id = plan.job_id
JOIN holdfast_live AS mine ON mine.id = plan.job_id AND mine.state = 'waiting'
JOIN holdfast_live AS other ON other.id = dependency.dependency_id
WHERE plan.queued AND (other.state = 'held' OR (other.state = 'scheduled' AND other.attempts > 0))
LIMIT :limit

-- name: delete_dependencies
DELETE FROM holdfast_dependency WHERE (job_id, dependency_id) IN (
    SELECT gone.value->>'job_id', gone.value->>'dependency_id' FROM json_each(:dependencies) AS gone)

-- name: unqueue_plans
-- Plans whose turn has come wait for nobody any more.
UPDATE holdfast_plan SET queued = 0
WHERE queued AND NOT EXISTS (
    SELECT 1 FROM holdfast_live AS live WHERE live.id = job_id AND live.state IN ('waiting', 'held'))

-- name: get_plan
SELECT plan.schedule, plan.time, plan.scope, plan.origin, plan.job_id, plan.actor, plan.decided_at,
    coalesce(live.state, finished.state) AS state
FROM holdfast_plan AS plan
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
LEFT JOIN holdfast_finished AS finished ON finished.id = plan.job_id
WHERE plan.schedule = :schedule AND plan.time = :time AND plan.scope = :scope

-- name: get_skipped_plan
-- The newest decision not to fire the plan of this timestamp.
SELECT schedule, first, last, scope, reason, count, decided_at FROM holdfast_skipped_plan
WHERE schedule = :schedule AND last >= :time AND first <= :time AND scope IN ('', :scope)
ORDER BY decided_at DESC LIMIT 1

-- name: list_plans
SELECT plan.schedule, plan.time, plan.scope, plan.origin, plan.job_id, plan.actor, plan.decided_at,
    coalesce(live.state, finished.state) AS state
FROM holdfast_plan AS plan
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
LEFT JOIN holdfast_finished AS finished ON finished.id = plan.job_id
WHERE plan.schedule = :schedule ORDER BY plan.time DESC, plan.scope DESC LIMIT :limit

-- name: list_skipped_plans
SELECT schedule, first, last, scope, reason, count, decided_at FROM holdfast_skipped_plan
WHERE schedule = :schedule ORDER BY last DESC, first DESC, scope LIMIT :limit

-- name: list_known_plans
SELECT plan.schedule, plan.time, plan.scope FROM json_each(:plan) AS asked
JOIN holdfast_plan AS plan ON plan.schedule = asked.value->>'schedule' AND plan.time = asked.value->>'time'
    AND plan.scope = asked.value->>'scope'

-- name: prune_plans
-- Those of live jobs stay.
DELETE FROM holdfast_plan WHERE (schedule, time, scope) IN (
    SELECT schedule, time, scope FROM holdfast_plan
    WHERE decided_at < :now - :age AND NOT EXISTS (SELECT 1 FROM holdfast_live AS live WHERE live.id = job_id)
    ORDER BY decided_at LIMIT :limit)
RETURNING job_id

-- name: prune_skipped_plans
DELETE FROM holdfast_skipped_plan WHERE (schedule, last, first, scope, reason) IN (
    SELECT schedule, last, first, scope, reason FROM holdfast_skipped_plan
    WHERE decided_at < :now - :age ORDER BY decided_at LIMIT :limit)
RETURNING count
