-- Refusals: jobs whose payload some build could not read. A build is the code of a worker.

-- fragment: unreadable
-- Whether a live job is held because no live worker can read its payload.
(state = 'held' AND reader = '' AND refusals IS NOT NULL)

-- fragment: state_when_due
-- The state of a job that is no longer held.
CASE WHEN due_at > (SELECT holdfast.now()) THEN 'scheduled' ELSE 'ready' END

-- name: list_refused_lanes
-- List the lanes of refused jobs that are held or ready.
SELECT DISTINCT state, reader, queue, kind FROM holdfast.live
WHERE refusals IS NOT NULL AND state IN ('held', 'ready') ORDER BY state, reader, queue, kind

-- name: withdraw_jobs
-- Hold ready jobs of a lane whose reader is gone.
UPDATE holdfast.live SET state = 'held', reader = '', note = :note
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.live
    WHERE refusals IS NOT NULL AND state = 'ready' AND reader = :reader AND queue = :queue AND kind = :kind
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id

-- name: offer_jobs
-- Release jobs of a lane that no worker could read to a build that has not refused them.
-- planner: state || '' hides the state, so that PostgreSQL uses live_refused and does not walk all held jobs.
UPDATE holdfast.live SET state = {state_when_due}, reader = :build, note = NULL
WHERE id = ANY(ARRAY(
    SELECT id FROM holdfast.live
    WHERE refusals IS NOT NULL AND state || '' = 'held' AND reader = '' AND queue = :queue AND kind = :kind
        AND strpos(refusals::text, :build) = 0
    LIMIT :limit::bigint FOR UPDATE SKIP LOCKED))
RETURNING id
