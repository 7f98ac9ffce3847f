-- fragment: live_with_job
-- A live job and its request.
holdfast_live AS live JOIN holdfast_job AS job ON job.id = live.id

-- fragment: lock_wait
-- SQLite has no row locks.
true

-- fragment: brief_lock_wait
-- SQLite has no row locks.
true

-- fragment: queue_lock_wait
-- SQLite has no row locks.
true

-- fragment: leases_after_claim
-- The leases that the next statement writes, packed into one row: Python lets other threads run before each row that it
-- reads, and waits for them after it.
json_group_array(json_array(live.id, live.token + 1, live.kind, live.queue, job.payload, live.attempts + 1,
    live.no_prefetch, live.losses, live.priority, live.due_at,
    CASE WHEN live.token > 0 THEN (SELECT checkpoint FROM holdfast_progress WHERE job_id = live.id) END,
    live.kind_version, job.timeout, job.plan, :worker)) AS packed

-- fragment: leases_with_live
-- The live rows of :leases, a JSON object {"17": {"token": 3, ...}}.
-- planner: CROSS JOIN keeps this order, so that each lease is one primary-key lookup.
json_each(:leases) AS lease CROSS JOIN holdfast_live AS live ON live.id = CAST(lease.key AS INTEGER)

-- fragment: is_fenced
-- The fence: no other run, and no other worker. A token alone may come again in a copy that was restored.
live.token = lease.value->>'token' AND live.worker = :worker AND live.state = 'running'

-- fragment: readers
-- The readers of a claim: '' for jobs of every build, and :build while jobs wait for this build alone. The second would
-- double the lanes of every claim.
(SELECT '' AS name UNION ALL SELECT :build WHERE EXISTS (
        SELECT 1 FROM holdfast_live WHERE state = 'ready' AND reader = :build AND reader <> '' AND refusals IS NOT NULL))

-- fragment: lane_of_worker
-- The condition on a queue and a kind to be a lane of this worker: the autoscaler admits the commands of its queues.
NOT (kinds.key = 'command' AND queues.value IN (SELECT value FROM json_each(:autoscaled)))

-- fragment: next_in_lane
-- The ready jobs of a lane that may begin now, the best first; in a paused queue only those of the highest priority. A
-- poison suspect of level 2 or 3 waits while its level has no room, and a job whose lost run goes on in this worker waits
-- for its end. They hold up no other job.
SELECT id FROM holdfast_live
WHERE state = 'ready' AND queue = lane.queue AND kind = lane.kind AND reader = lane.reader AND priority >= lane.least
    AND (losses < 2 OR (losses = 2 AND :few > 0) OR (losses = 3 AND :alone > 0))
    AND id NOT IN (SELECT value FROM json_each(:unfinished))
ORDER BY priority DESC, due_at, id

-- fragment: claim_best
-- Claim of the jobs in "best": the first :free ones, then a prefix of the others. The prefix ends before the first job
-- that needs a free slot. No start is recorded. The first statement returns the leases, the second
-- one writes them: there is one writer, and RETURNING with a search for each column of the request takes longer.
surplus AS (                -- poison suspects beyond the room of their level
    SELECT id FROM (
        SELECT id, losses, row_number() OVER (PARTITION BY losses ORDER BY priority DESC, due_at, id) AS place
        FROM best WHERE losses > 1)
    WHERE place > CASE losses WHEN 2 THEN :few ELSE :alone END
), ranked AS (
    SELECT id, slot_only, row_number() OVER (ORDER BY priority DESC, due_at, id) AS place
    FROM best WHERE id NOT IN (SELECT id FROM surplus)
)
SELECT {leases_after_claim}
-- planner: CROSS JOIN keeps this order, so that each job is two primary-key lookups.
FROM best CROSS JOIN holdfast_live AS live ON live.id = best.id CROSS JOIN holdfast_job AS job ON job.id = best.id
-- planner: the common cases do without ranks: no job needs a slot, or all have one and none is a poison suspect.
WHERE NOT EXISTS (SELECT 1 FROM best WHERE slot_only)
    OR (:ahead = 0 AND NOT EXISTS (SELECT 1 FROM best WHERE losses > 1)) OR best.id IN (
    SELECT id FROM ranked
    WHERE place <= :free
        OR place < (SELECT coalesce(min(place), :free + :ahead + 1) FROM ranked WHERE slot_only AND place > :free));
UPDATE holdfast_live SET state = 'running', token = token + 1, worker = :worker,
    claimed_at = :now,
    -- :lease_duration is that of all kinds, if they have the same one. A path of JSON would read a dot in the name of a kind
    -- as a level.
    lease_expires_at = :now + coalesce(:lease_duration, (
        SELECT kinds.value->>'lease_duration' FROM json_each(:kinds) AS kinds WHERE kinds.key = holdfast_live.kind))
WHERE id IN (SELECT value FROM json_each(:chosen))

-- fragment: lanes
-- The lanes of a worker. A lane is a queue and a kind that the worker serves, and a reader: all jobs but those that other
-- builds refused, and those that only this build may claim. Queues with a limit are left out: claim_limited serves them.
-- slot_only: jobs of this kind are never prefetched.
SELECT queues.value AS queue, kinds.key AS kind, readers.name AS reader,
    NOT (kinds.value->>'short') AS slot_only, {least_priority} AS least
FROM json_each(:queues) AS queues LEFT JOIN holdfast_queue AS queue ON queue.name = queues.value
CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN {readers} AS readers
WHERE {lane_of_worker} AND NOT EXISTS (SELECT 1 FROM holdfast_stop_switch)
    AND queue.run_limit IS NULL AND queue.worker_limit IS NULL

-- name: claim
-- Claim the best ready jobs, in one order over all lanes.
WITH lane AS MATERIALIZED ({lanes}
), filled AS MATERIALIZED (     -- the lanes that have jobs
    SELECT lane.*, row_number() OVER () AS number FROM lane WHERE EXISTS ({next_in_lane} LIMIT 1)
), size AS MATERIALIZED (       -- how many jobs to claim, and how many of each lane to read at first: few if lanes are many
    SELECT :free + :ahead AS jobs, min(:free + :ahead, 4 + 2 * (:free + :ahead) / max(1, count(*))) AS depth FROM filled
), first AS MATERIALIZED (      -- the best of those
    SELECT lane.number, candidate.id, candidate.priority, candidate.due_at, candidate.losses,
        {is_slot_only} AS slot_only
    FROM filled AS lane CROSS JOIN holdfast_live AS candidate
    WHERE candidate.id IN ({next_in_lane} LIMIT (SELECT depth FROM size))
    ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT :free + :ahead
), deep AS MATERIALIZED (       -- lanes that were read to their depth: they may have more of the best jobs
    SELECT number FROM first WHERE (SELECT depth < jobs FROM size)
    GROUP BY number HAVING count(*) = (SELECT depth FROM size)
), best AS MATERIALIZED (
    SELECT id, priority, due_at, losses, slot_only FROM first WHERE number NOT IN (SELECT number FROM deep)
    UNION ALL
    SELECT candidate.id, candidate.priority, candidate.due_at, candidate.losses,
        {is_slot_only}
    FROM deep JOIN filled AS lane USING (number) CROSS JOIN holdfast_live AS candidate
    WHERE candidate.id IN ({next_in_lane} LIMIT :free + :ahead)
    ORDER BY 2 DESC, 3, 1 LIMIT :free + :ahead
), {claim_best}

-- name: claim_limited
-- Claim from all queues, up to the free slots of limited ones. The caller holds their locks (lock_limited_queues).
WITH capacity AS MATERIALIZED (     -- free slots per queue: the smaller of the global and the per-worker limit
    SELECT queues.value, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        {least_priority} AS least,
        max(0, min(
            coalesce(queue.run_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL), :free + :ahead),
            coalesce(queue.worker_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL AND live.worker = :worker),
                :free + :ahead)
        )) AS slots
    FROM json_each(:queues) AS queues LEFT JOIN holdfast_queue AS queue ON queue.name = queues.value
    WHERE NOT EXISTS (SELECT 1 FROM holdfast_stop_switch)
), lane AS MATERIALIZED (           -- jobs of limited queues are never prefetched
    SELECT queues.value AS queue, kinds.key AS kind, readers.name AS reader, queues.slots, queues.least,
        queues.limited OR NOT (kinds.value->>'short') AS slot_only
    FROM capacity AS queues CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN {readers} AS readers
    WHERE {lane_of_worker} AND queues.slots > 0
), ranked_in_queue AS (             -- the first ready jobs of each lane, ranked within their queue
    SELECT candidate.id, candidate.priority, candidate.due_at, candidate.losses, lane.slots,
        {is_slot_only} AS slot_only,
        row_number() OVER (
            PARTITION BY lane.queue ORDER BY candidate.priority DESC, candidate.due_at, candidate.id) AS place
    FROM lane CROSS JOIN holdfast_live AS candidate
    WHERE candidate.id IN ({next_in_lane} LIMIT :free + :ahead)
), best AS MATERIALIZED (           -- as in claim, with at most as many jobs per queue as it has slots
    SELECT id, priority, due_at, losses, slot_only FROM ranked_in_queue
    WHERE place <= slots
    ORDER BY priority DESC, due_at, id LIMIT :free + :ahead
), {claim_best}

-- name: list_claimable
-- List the best jobs that wait and that a worker could claim, if its shards made room. :shards counts its shards by
-- queue: a queue that has reached its limit can serve as many jobs as it has shards here. A paused queue serves none.
WITH capacity AS MATERIALIZED (     -- free places of the queue (NULL without a limit)
    SELECT queues.value AS name, CASE WHEN queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL THEN max(0, min(
            coalesce(queue.run_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL), :limit),
            coalesce(queue.worker_limit - (
                SELECT count(*) FROM holdfast_live AS live
                WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL AND live.worker = :worker), :limit)
        )) END AS room
    FROM json_each(:queues) AS queues LEFT JOIN holdfast_queue AS queue ON queue.name = queues.value
    WHERE queue.paused IS NOT 1 AND NOT EXISTS (SELECT 1 FROM holdfast_stop_switch)
), lane AS MATERIALIZED (           -- and how many of its jobs are listed
    SELECT queues.name AS queue, kinds.value AS kind, readers.name AS reader, queues.room, -2147483648 AS least,
        coalesce(queues.room + coalesce(
            (SELECT shards.value->>'count' FROM json_each(:shards) AS shards WHERE shards.key = queues.name), 0), :limit) AS jobs
    FROM capacity AS queues CROSS JOIN json_each(:kinds) AS kinds CROSS JOIN {readers} AS readers
), ranked_in_queue AS (
    SELECT first.id, lane.queue, first.priority, first.due_at, lane.room, lane.jobs, row_number() OVER (
        PARTITION BY lane.queue ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM lane CROSS JOIN holdfast_live AS first
    WHERE first.id IN ({next_in_lane} LIMIT :limit)
)
SELECT queue, priority, (SELECT label FROM holdfast_job AS job WHERE job.id = ranked_in_queue.id) AS label, room
FROM ranked_in_queue WHERE place <= jobs ORDER BY priority DESC, due_at, id LIMIT :limit

-- name: read_requests
-- Read the requests for a holder whose leases need no renewal yet.
SELECT live.id AS job_id, 0 AS renewed, live.requested FROM {leases_with_live}
WHERE {is_fenced}

-- name: renew_leases
-- Renew all leases of a worker, record the starts of jobs that have begun, and return requests for the holder.
UPDATE holdfast_live SET lease_expires_at = :now + (lease.value->>'lease_duration'),
    attempts = attempts + CASE WHEN started_at IS NULL AND lease.value->>'mark' THEN 1 ELSE 0 END,
    started_at = CASE WHEN started_at IS NULL AND lease.value->>'mark' THEN :now ELSE started_at END
FROM json_each(:leases) AS lease
WHERE holdfast_live.id = CAST(lease.key AS INTEGER) AND token = lease.value->>'token' AND worker = :worker AND state = 'running'
RETURNING holdfast_live.id AS job_id, 1 AS renewed, requested

-- name: record_starts
-- Record durable starts: from now on the loss of the holder costs an attempt.
UPDATE holdfast_live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, :now)
FROM json_each(:leases) AS lease
WHERE holdfast_live.id = CAST(lease.key AS INTEGER) AND token = lease.value->>'token' AND worker = :worker AND state = 'running'
RETURNING holdfast_live.id

-- name: settle_done
-- Finish jobs that succeeded: delete the live row, append the finished one. A value that no lease has is left out of
-- :leases.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, result, error)
SELECT live.id, 'done', live.queue, live.kind, live.priority, live.due_at,
    live.attempts + CASE WHEN live.started_at IS NULL THEN 1 ELSE 0 END, live.crashes, live.token, live.worker,
    coalesce(:now - (lease.value->>'ran'), live.started_at, live.claimed_at),
    :now - coalesce(lease.value->>'age', 0), 'done', lease.value->>'result', lease.value->>'error'
FROM {leases_with_live}
WHERE {is_fenced} AND {where};
SELECT json_group_array(json_array(live.id, live.has_dependents)) AS packed FROM {leases_with_live}
WHERE {is_fenced} AND {where};
DELETE FROM holdfast_live WHERE id IN (SELECT value FROM json_each(:chosen))

-- name: list_unsettled
-- Find out why settlements changed no row: recorded before, so that a repeated settle is a success, or locked by
-- another transaction. The leases of the others are lost.
SELECT finished.id, 'recorded' AS result
FROM json_each(:leases) AS lease CROSS JOIN holdfast_finished AS finished ON finished.id = CAST(lease.key AS INTEGER)
WHERE finished.token = lease.value->>'token' AND finished.worker = :worker AND finished.reason = lease.value->>'reason'
UNION
SELECT attempt.job_id, 'recorded'
FROM json_each(:leases) AS lease CROSS JOIN holdfast_attempt AS attempt ON attempt.job_id = CAST(lease.key AS INTEGER)
WHERE attempt.token = lease.value->>'token' AND attempt.worker = :worker AND attempt.reason = lease.value->>'reason'

-- name: unlocked_leases
-- Condition: a lease whose row no other transaction has locked. SQLite has no row locks.
:leases IS NOT NULL

-- name: lock_leases
-- Lock running jobs and read the numbers that judge() needs.
SELECT {lease_columns} FROM {leases_with_live}
JOIN holdfast_job AS job ON job.id = live.id
WHERE {is_fenced}
ORDER BY live.id

-- name: return_jobs
-- Return running jobs to ready, scheduled or held. raised is 1 on take-over, so that the old token is refused.
UPDATE holdfast_live SET state = verdict.value->>'state', attempts = verdict.value->>'attempts',
    crashes = verdict.value->>'crashes', token = token + (verdict.value->>'raised'),
    losses = verdict.value->>'losses',
    note = coalesce(verdict.value->>'note', CASE WHEN verdict.value->>'state' = 'held' THEN note END),
    reader = coalesce(verdict.value->>'reader', reader), refusals = coalesce(verdict.value->>'refusals', refusals),
    due_at = coalesce(:now + (verdict.value->>'delay'), due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
FROM json_each(:verdict) AS verdict
WHERE holdfast_live.id = CAST(verdict.key AS INTEGER) AND token = verdict.value->>'token'
    AND worker = verdict.value->>'worker' AND state = 'running'

-- name: finish_jobs
-- Finish running jobs as dead or cancelled.
INSERT INTO holdfast_finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT live.id, verdict.value->>'state', live.queue, live.kind, live.priority, live.due_at, verdict.value->>'attempts',
    verdict.value->>'crashes', live.token + (verdict.value->>'raised'), live.worker,
    coalesce(:now - (verdict.value->>'ran'), live.started_at, live.claimed_at), :now - (verdict.value->>'age'),
    verdict.value->>'reason', verdict.value->>'error'
FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
WHERE live.token = verdict.value->>'token' AND live.worker = verdict.value->>'worker' AND live.state = 'running';
DELETE FROM holdfast_live
WHERE id IN (
    SELECT live.id
    FROM json_each(:verdict) AS verdict CROSS JOIN holdfast_live AS live ON live.id = CAST(verdict.key AS INTEGER)
    WHERE live.token = verdict.value->>'token' AND live.worker = verdict.value->>'worker' AND live.state = 'running')

-- name: pause_queues_of_failed
-- Pause the queues of commands that have failed for good and request it, with the newest one in the note.
INSERT INTO holdfast_queue AS existing (name, paused, note)
SELECT queue, 1, 'job ' || id || ' failed (' || reason || ')'
FROM holdfast_finished AS finished
WHERE id IN (
    SELECT max(id) FROM holdfast_finished AS finished
    WHERE id IN (SELECT value FROM json_each(:ids)) AND (SELECT json_extract(payload, '$.pause_queue') FROM holdfast_job AS job WHERE job.id = finished.id) = 1
    GROUP BY queue)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, note = excluded.note

-- name: release_unstarted
-- Return prefetched jobs that have not started to the queue, at no cost and without a trace.
UPDATE holdfast_live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
FROM json_each(:leases) AS lease
WHERE holdfast_live.id = CAST(lease.key AS INTEGER) AND token = lease.value->>'token' AND worker = :worker AND state = 'running'
    AND started_at IS NULL AND requested IS NULL
RETURNING holdfast_live.id

-- name: read_next_due
-- Read the time until the next scheduled job is due. It is negative when one is overdue.
-- planner: due_at > 0 makes SQLite read live_due in order; without it, it sorts all scheduled jobs.
SELECT due_at - :now AS wait FROM holdfast_live WHERE state = 'scheduled' AND due_at > 0 AND {where}
ORDER BY due_at, id LIMIT 1

-- name: list_orphans
-- List live rows without a request where they take a place: among the first ready jobs of each lane, and the expired
-- leases. No claim and no take-over returns them.
WITH RECURSIVE {lanes_with_jobs}
), occupied (id) AS (
    SELECT first.id FROM lane CROSS JOIN holdfast_live AS first
    WHERE first.id IN (
        SELECT id FROM holdfast_live AS live
        WHERE state = 'ready' AND live.queue = lane.queue AND live.kind = lane.kind AND live.reader = ''
        ORDER BY priority DESC, due_at, id LIMIT :limit)
    UNION ALL
    SELECT id FROM (SELECT id FROM holdfast_live WHERE lease_expires_at < :now
        ORDER BY queue, lease_expires_at LIMIT :limit)
)
SELECT id FROM occupied WHERE NOT EXISTS (SELECT 1 FROM holdfast_job AS job WHERE job.id = occupied.id)
