-- name: advance_schedules
-- Advance cursors after planning, row by row.
UPDATE holdfast_schedule SET cursor = :advance.cursor, next_at = :advance.next_at, check_at = :advance.next_at,
    fired = :advance.fired, failures = 0, error = NULL, token = token + 1
WHERE name = :advance.name

-- name: list_open_plans
-- List plans of scopes whose jobs were live at the last check, and the present state of those jobs; of a line, the newest.
-- planner: CROSS JOIN begins with the scopes; SQLite may otherwise read all open plans. max() as in list_lines.
SELECT opened.schedule, opened.scope, opened.time, opened.job_id, live.state, coalesce(live.attempts, 0) AS attempts,
    opened.queued
FROM (
    SELECT plan.schedule, plan.scope, plan.time, plan.job_id, plan.queued FROM json_each(:scopes) AS requested
    CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value->>'schedule'
        AND plan.scope = requested.value->>'scope' AND plan.open AND NOT plan.queued
    UNION ALL
    SELECT plan.schedule, plan.scope, max(plan.time), plan.job_id, plan.queued FROM json_each(:scopes) AS requested
    CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value->>'schedule'
        AND plan.scope = requested.value->>'scope' AND plan.open AND plan.queued
    GROUP BY plan.schedule, plan.scope) AS opened
LEFT JOIN holdfast_live AS live ON live.id = opened.job_id
ORDER BY opened.schedule, opened.scope, opened.time

-- name: list_lines
-- Measure the lines of scopes: the number of their plans, and the newest one.
-- planner: CROSS JOIN as in list_open_plans; with max(), SQLite takes job_id from the row of the maximum.
SELECT line.schedule, line.scope, line.length, line.job_id AS newest_id, live.state AS newest_state FROM (
    SELECT plan.schedule, plan.scope, count(*) AS length, max(plan.time), plan.job_id
    FROM json_each(:scopes) AS requested
    CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value->>'schedule'
        AND plan.scope = requested.value->>'scope' AND plan.open AND plan.queued
    GROUP BY plan.schedule, plan.scope) AS line
LEFT JOIN holdfast_live AS live ON live.id = line.job_id

-- name: list_queued_plans
-- List all plans in the lines of scopes, and the present state of their jobs.
-- planner: CROSS JOIN as in list_open_plans.
SELECT plan.schedule, plan.scope, plan.time, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts,
    true AS queued
FROM json_each(:scopes) AS requested
CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value->>'schedule'
    AND plan.scope = requested.value->>'scope' AND plan.open AND plan.queued
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
ORDER BY plan.schedule, plan.scope, plan.time
