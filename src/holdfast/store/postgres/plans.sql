-- name: list_open_plans
-- List plans outside any line whose jobs were live at the last check, and the present state of those jobs.
SELECT plan.schedule, plan.scope, plan.time, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM holdfast.plan LEFT JOIN holdfast.live ON live.id = plan.job_id
WHERE plan.open AND NOT plan.queued AND plan.schedule = ANY(:schedules::text[])
ORDER BY plan.schedule, plan.scope, plan.time

-- name: list_lines
-- Measure the lines of scopes: the number of their plans, and the newest one.
-- planner: LATERAL reads the line of each scope from its index; a plain join may read the lines of all schedules.
SELECT newest.schedule, newest.scope, line.length, newest.job_id, live.state
FROM jsonb_to_recordset(:scopes::jsonb) AS requested (schedule text, scope text)
CROSS JOIN LATERAL (
    SELECT count(*) AS length, max(plan.time) AS time FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope) AS line
JOIN holdfast.plan AS newest
    ON newest.schedule = requested.schedule AND newest.time = line.time AND newest.scope = requested.scope
LEFT JOIN holdfast.live ON live.id = newest.job_id

-- name: list_queued_plans
-- List all plans in the lines of scopes, and the present state of their jobs.
-- planner: LATERAL as in list_lines.
SELECT queued.schedule, queued.scope, queued.time, queued.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM jsonb_to_recordset(:scopes::jsonb) AS requested (schedule text, scope text)
CROSS JOIN LATERAL (
    SELECT plan.schedule, plan.scope, plan.time, plan.job_id FROM holdfast.plan
    WHERE plan.open AND plan.queued AND plan.schedule = requested.schedule AND plan.scope = requested.scope) AS queued
LEFT JOIN holdfast.live ON live.id = queued.job_id
ORDER BY queued.schedule, queued.scope, queued.time
