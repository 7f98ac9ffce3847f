-- name: advance_schedules
-- Advance cursors after planning.
UPDATE holdfast.schedule AS schedule SET cursor = advanced.cursor, next_at = advanced.next_at,
    check_at = advanced.next_at, fired = advanced.fired, failures = 0, error = NULL, token = schedule.token + 1
FROM unnest(:advance.name::text[], :advance.cursor::timestamptz[], :advance.next_at::timestamptz[],
    :advance.fired::bigint[]) AS advanced (name, cursor, next_at, fired)
WHERE schedule.name = advanced.name

-- name: list_open_plans
-- List plans of scopes whose jobs were live at the last check, and the present state of those jobs; of a line, the newest.
-- planner: OFFSET 0 as in list_queued_plans.
SELECT opened.schedule, opened.scope, opened.time, opened.job_id, live.state, coalesce(live.attempts, 0) AS attempts,
    opened.queued
FROM unnest(:scopes.schedule::text[], :scopes.scope::text[]) AS requested (schedule, scope)
CROSS JOIN LATERAL (
    (SELECT plan.schedule, plan.scope, plan.time, plan.job_id, plan.queued FROM holdfast.plan
    WHERE plan.open AND NOT plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope OFFSET 0)
    UNION ALL (SELECT plan.schedule, plan.scope, plan.time, plan.job_id, plan.queued FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope
    ORDER BY plan.time DESC LIMIT 1)) AS opened
LEFT JOIN holdfast.live ON live.id = opened.job_id
ORDER BY opened.schedule, opened.scope, opened.time

-- name: list_lines
-- Measure the lines of scopes: the number of their plans, and the newest one.
-- planner: LIMIT and count(*) keep each LATERAL apart; in a plain join, the count may run once for each plan.
SELECT requested.schedule, requested.scope, line.length, newest.job_id AS newest_id, live.state AS newest_state
FROM unnest(:scopes.schedule::text[], :scopes.scope::text[]) AS requested (schedule, scope)
CROSS JOIN LATERAL (
    SELECT plan.job_id FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope
    ORDER BY plan.time DESC LIMIT 1) AS newest
CROSS JOIN LATERAL (
    SELECT count(*) AS length FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope) AS line
LEFT JOIN holdfast.live ON live.id = newest.job_id

-- name: list_queued_plans
-- List all plans in the lines of scopes, and the present state of their jobs.
-- planner: OFFSET 0 keeps LATERAL apart; a plain join may read the lines of all schedules.
SELECT queued.schedule, queued.scope, queued.time, queued.job_id, live.state, coalesce(live.attempts, 0) AS attempts,
    true AS queued
FROM unnest(:scopes.schedule::text[], :scopes.scope::text[]) AS requested (schedule, scope)
CROSS JOIN LATERAL (
    SELECT plan.schedule, plan.scope, plan.time, plan.job_id FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope
    OFFSET 0) AS queued
LEFT JOIN holdfast.live ON live.id = queued.job_id
ORDER BY queued.schedule, queued.scope, queued.time
