-- name: list_open_plans
-- List plans whose jobs were live at the last check, and the present state of those jobs.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM holdfast.plan LEFT JOIN holdfast.live ON live.id = plan.job_id
WHERE plan.open AND plan.schedule = ANY(:schedules::text[])
ORDER BY plan.schedule, plan.scope, plan.time
