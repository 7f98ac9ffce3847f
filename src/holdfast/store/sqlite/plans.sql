-- Plans: what schedules fired or skipped.

-- name: list_open_plans
-- List plans whose jobs were live at the last check, and the present state of those jobs.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM json_each(:schedules) AS requested
CROSS JOIN holdfast_plan AS plan ON plan.schedule = requested.value AND plan.open
LEFT JOIN holdfast_live AS live ON live.id = plan.job_id
ORDER BY plan.schedule, plan.scope, plan.time

-- name: advance_schedules
-- Advance cursors after planning.
UPDATE holdfast_schedule SET cursor = moved.value->>'cursor', next_at = moved.value->>'next_at',
    check_at = moved.value->>'next_at', fired = moved.value->>'fired', failures = 0, error = NULL, token = token + 1
FROM json_each(:advance) AS moved WHERE name = moved.value->>'name'
