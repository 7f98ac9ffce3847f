-- Plans: what schedules fired or skipped.

-- name: list_open_plans
-- List plans whose jobs were live at the last check, and the present state of those jobs.
SELECT plan.schedule, plan.scope, plan.job_id, live.state, coalesce(live.attempts, 0) AS attempts
FROM holdfast.plan LEFT JOIN holdfast.live ON live.id = plan.job_id
WHERE plan.open AND plan.schedule = ANY(:schedules::text[])
ORDER BY plan.schedule, plan.scope, plan.time

-- name: advance_schedules
-- Advance cursors after planning.
UPDATE holdfast.schedule SET cursor = moved.cursor, next_at = moved.next_at, check_at = moved.next_at,
    fired = moved.fired, failures = 0, error = NULL, token = schedule.token + 1
FROM jsonb_to_recordset(:advance::jsonb)
    AS moved (name text, cursor timestamptz, next_at timestamptz, fired bigint)
WHERE schedule.name = moved.name
