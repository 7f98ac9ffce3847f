-- name: list_open_plans
-- List plans whose jobs were live at the last check, and the present state of those jobs.
-- planner: CROSS JOIN begins with the schedules; SQLite may otherwise read all open plans.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM json_each(:schedules) AS requested
CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value AND plan.open
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
ORDER BY plan.schedule, plan.scope, plan.time
