-- Plans: the fired and the skipped times of schedules.

-- fragment: plan_columns
fired.schedule, fired.time, fired.scope, fired.origin, fired.job_id, fired.actor, fired.decided_at,
    coalesce(live.state, finished.state) AS state

-- fragment: with_jobs
LEFT JOIN holdfast.live AS live ON live.id = fired.job_id
LEFT JOIN holdfast.finished AS finished ON finished.id = fired.job_id

-- fragment: skipped_plan_columns
schedule, first, last, scope, reason, count, decided_at

-- name: lock_schedules
-- Lock schedules for planning. Those that another planner has locked are left to it; a stopped store locks none.
SELECT name, token, fired FROM holdfast.schedule
WHERE name = ANY(:names::text[]) AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
ORDER BY name FOR UPDATE SKIP LOCKED

-- name: close_plans
-- Close plans whose jobs have finished.
UPDATE holdfast.plan AS plan SET open = false, queued = false
FROM jsonb_to_recordset(:plan::jsonb) AS finished (schedule text, time timestamptz, scope text)
WHERE plan.schedule = finished.schedule AND plan.time = finished.time AND plan.scope = finished.scope

-- name: reopen_plans
-- Reopen the plans of jobs that run again: the next plan of their scope takes them into account. A job that existed
-- before its plan, by its unique key, blocks no plan.
UPDATE holdfast.plan AS plan SET open = true
WHERE job_id = ANY(:ids::bigint[]) AND NOT open AND origin <> 'backfill'
    AND decided_at = (SELECT created_at FROM holdfast.job AS job WHERE job.id = plan.job_id)

-- name: insert_skipped_plans
-- Record plans that were not fired.
INSERT INTO holdfast.skipped_plan (schedule, last, first, scope, reason, count, decided_at)
SELECT schedule, last, first, scope, reason, count, (SELECT holdfast.now())
FROM jsonb_to_recordset(:skip::jsonb) AS skipped (schedule text, last timestamptz, first timestamptz, scope text,
    reason text, count bigint) WHERE true
ON CONFLICT DO NOTHING

-- name: list_stuck_plans
-- List plans that wait for a job that is held or waits for its retry.
SELECT dependency.job_id, dependency.dependency_id FROM holdfast.plan AS plan
JOIN holdfast.dependency AS dependency ON dependency.job_id = plan.job_id
JOIN holdfast.live AS queued ON queued.id = plan.job_id AND queued.state = 'waiting'
JOIN holdfast.live AS other ON other.id = dependency.dependency_id
WHERE plan.queued AND (other.state = 'held' OR (other.state = 'scheduled' AND other.attempts > 0))
LIMIT :limit::bigint

-- name: list_queued_jobs
-- List the jobs of plans in line, a page at a time, and their states; NULL: it has finished.
SELECT plan.job_id, (SELECT state FROM holdfast.live AS live WHERE live.id = plan.job_id) AS state
FROM holdfast.plan AS plan WHERE plan.queued AND plan.job_id > :after_id ORDER BY plan.job_id LIMIT :limit::bigint

-- name: unqueue_plans
-- Clear the queued mark of plans whose turn has come.
UPDATE holdfast.plan AS plan SET queued = false WHERE queued AND job_id = ANY(:ids::bigint[])

-- name: get_plan
-- Read a plan and the state of its job.
SELECT {plan_columns} FROM holdfast.plan AS fired {with_jobs}
WHERE fired.schedule = :schedule AND fired.time = :time AND fired.scope = :scope

-- name: get_skipped_plan
-- Read the newest decision to skip a time of a schedule.
SELECT {skipped_plan_columns} FROM holdfast.skipped_plan
WHERE schedule = :schedule AND last >= :time AND first <= :time AND scope IN ('', :scope)
ORDER BY decided_at DESC LIMIT 1

-- name: list_plans
-- List the plans of a schedule, newest first: all, or those of a scope or with jobs in a state among the newest :window.
SELECT {plan_columns} FROM (
    SELECT * FROM holdfast.plan AS newest
    WHERE newest.schedule = :schedule ORDER BY newest.time DESC, newest.scope DESC LIMIT :window::bigint) AS fired
{with_jobs}
WHERE (:scope::text IS NULL OR fired.scope = :scope::text)
    AND (:state::text IS NULL OR coalesce(live.state, finished.state) = :state::text)
ORDER BY fired.time DESC, fired.scope DESC LIMIT :limit::bigint

-- name: list_skipped_plans
-- List the skipped plans of a schedule, newest first: all, or those that concern a scope among the newest :window.
SELECT {skipped_plan_columns} FROM (
    SELECT * FROM holdfast.skipped_plan AS newest
    WHERE newest.schedule = :schedule ORDER BY newest.last DESC, newest.first DESC, newest.scope
    LIMIT :window::bigint) AS skipped
WHERE :scope::text IS NULL OR scope = :scope::text OR scope = ''
ORDER BY last DESC, first DESC, scope LIMIT :limit::bigint

-- name: list_known_plans
-- List which of these plans are recorded already.
SELECT plan.schedule, plan.time, plan.scope
FROM jsonb_to_recordset(:plan::jsonb) AS requested (schedule text, time timestamptz, scope text)
JOIN holdfast.plan AS plan ON plan.schedule = requested.schedule AND plan.time = requested.time
    AND plan.scope = requested.scope
