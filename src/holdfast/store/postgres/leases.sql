-- fragment: lock_wait
-- Give up on a locked row after 2 seconds: a user's transaction may hold it for minutes. The limit lasts until the
-- transaction ends.
(SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL

-- fragment: brief_lock_wait
-- Our own transactions hold a row for milliseconds. A caller that waits longer leaves locked rows out instead.
(SELECT set_config('lock_timeout', '200ms', true)) IS NOT NULL

-- fragment: queue_lock_wait
-- A worker that is stopped inside its claim holds the lock of a queue: others give up after 2 seconds, and the server ends
-- that transaction when it was idle for 5 seconds.
(SELECT set_config('lock_timeout', '2s', true)
    || set_config('idle_in_transaction_session_timeout', '5s', true)) IS NOT NULL

-- fragment: place
-- The place of a row's lease in the columns of :leases, which are in the order of ids. As many ids as this are not above
-- that of the row; a binary search counts them.
-- planner: a join's order is the planner's choice. With stale statistics it compares every row with every parameter.
width_bucket(id, :leases.id::bigint[])

-- fragment: held
-- The condition on a live row to be held by one of :leases, all of :worker.
id = ANY(:leases.id::bigint[]) AND {has_token}

-- fragment: has_token
-- The fence: no other run, and no other worker. A token alone may come again after a failover that lost the last commits.
token = (:leases.token::bigint[])[{place}] AND worker = :worker AND state = 'running'

-- fragment: live_with_job
-- planner: LATERAL with LIMIT 1 forces one primary-key lookup per row; a join may hash the whole job table.
holdfast.live CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE job.id = live.id LIMIT 1) AS job

-- fragment: lane_of_worker
-- The condition on a queue and a kind to be a lane of this worker: the autoscaler admits the commands of its queues.
NOT (kinds.name = 'command' AND queues.name = ANY(:autoscaled::text[]))

-- fragment: readers
-- The readers of a claim: '' for jobs of every build, and :build while jobs wait for this build alone. The second would
-- double the lanes of every claim.
(SELECT '' UNION ALL SELECT :build::text WHERE EXISTS (
        SELECT FROM holdfast.live WHERE state = 'ready' AND reader = :build AND reader <> '' AND refusals IS NOT NULL))

-- fragment: next_in_lane
-- The ready jobs of a lane that may begin now, the best first; in a paused queue only those of the highest priority. A
-- poison suspect of level 2 or 3 waits while its level has no room, and a job whose lost run goes on in this worker waits
-- for its end. They hold up no other job.
SELECT id, priority, due_at, losses, no_prefetch FROM holdfast.live
WHERE state = 'ready' AND holdfast.same(queue, lane.queue) AND holdfast.same(kind, lane.kind)
    AND holdfast.same(reader, lane.reader)
    AND priority >= lane.least
    AND (losses < 2 OR (losses = 2 AND :few::integer > 0) OR (losses = 3 AND :alone::integer > 0))
    AND NOT id = ANY(:unfinished::bigint[])
ORDER BY priority DESC, due_at, id

-- fragment: lock_best
-- Lock the jobs that "best" counts per lane. Other claims skip these rows, and find the next ones of the same lanes.
SELECT candidate.id, candidate.priority, candidate.due_at, candidate.losses,
    {is_slot_only} AS slot_only, lane.queue
FROM best AS lane CROSS JOIN LATERAL ({next_in_lane} LIMIT lane.jobs FOR UPDATE SKIP LOCKED) AS candidate

-- fragment: next_token
-- The token of a claim of a live row. The columns of holdfast.timeline are settings of the session (begin_timeline).
1 + CASE WHEN live.id <= (
        SELECT nullif(current_setting('holdfast' || '.last_id_' || 'holdfast.timeline'::regclass::oid, true), '')::bigint)
    THEN greatest(live.token, (
        SELECT nullif(current_setting('holdfast' || '.token_base_' || 'holdfast.timeline'::regclass::oid, true), '')::bigint))
    ELSE live.token END

-- fragment: begin_lease
-- Give live rows to the worker. :lease_duration is that of all kinds, if they have the same one. A job from before the
-- last failover may have had tokens that were lost with the old primary.
UPDATE holdfast.live SET state = 'running', worker = :worker, token = {next_token},
    claimed_at = (SELECT holdfast.now()),
    lease_expires_at = (SELECT holdfast.now())
        + coalesce(:lease_duration::interval, (:kinds::jsonb->live.kind->>'lease_duration')::interval)
FROM holdfast.job AS request

-- fragment: lease
-- What the worker needs to know of a job that it has claimed.
RETURNING live.id AS job_id, live.token, live.kind, live.queue,
    -- A claim that began before a payload changed must not return the old one: payload_of reads it afresh. Only jobs
    -- whose token has risen before can be affected.
    CASE WHEN live.token > 1 THEN holdfast.payload_of(live.id) ELSE request.payload::text END AS payload,
    live.attempts + 1 AS attempt, live.no_prefetch, live.losses, live.priority, live.due_at,
    CASE WHEN live.token > 1 THEN holdfast.checkpoint_of(live.id) END AS checkpoint, live.kind_version,
    request.timeout, request.plan::text AS plan, live.worker

-- fragment: claim_locked
-- Claim the first :free jobs that are locked, then a prefix of the others. The prefix ends before the first job that
-- needs a free slot. No start is recorded.
surplus AS (                -- poison suspects beyond the room of their level
    SELECT id FROM (
        SELECT id, losses, row_number() OVER (PARTITION BY losses ORDER BY priority DESC, due_at, id) AS place
        FROM locked WHERE losses > 1) AS suspect
    WHERE place > CASE losses WHEN 2 THEN :few::integer ELSE :alone::integer END
), ranked AS (
    SELECT id, slot_only, row_number() OVER (ORDER BY priority DESC, due_at, id) AS place
    FROM locked WHERE NOT id = ANY(ARRAY(SELECT id FROM surplus))
)
{begin_lease}
-- planner: = ANY(ARRAY(...)) keeps the primary key; UPDATE ... FROM a CTE scans the whole table.
-- planner: CASE leaves out the ranks in the common case, in which every locked job is claimed.
WHERE live.id = ANY(CASE
    WHEN NOT EXISTS (SELECT FROM locked WHERE slot_only AND (:ahead::bigint > 0 OR losses > 1))
    THEN ARRAY(SELECT id FROM locked)
    ELSE ARRAY(
        SELECT id FROM ranked
        WHERE place <= :free::bigint
            OR place < (SELECT coalesce(min(place), :free::bigint + :ahead::bigint + 1) FROM ranked
                WHERE slot_only AND place > :free::bigint)) END)
    AND request.id = live.id
{lease}

-- fragment: lanes
-- The lanes of a worker. A lane is a queue and a kind that the worker serves, and a reader: all jobs but those that other
-- builds refused, and those that only this build may claim. Queues with a limit are left out: claim_limited serves them.
-- slot_only: jobs of this kind are never prefetched.
SELECT queues.name AS queue, kinds.name AS kind, readers.name AS reader,
    NOT (kinds.options->>'short')::boolean AS slot_only, {least_priority} AS least
FROM unnest(:queues::text[]) AS queues (name) LEFT JOIN holdfast.queue ON queue.name = queues.name
CROSS JOIN jsonb_each(:kinds::jsonb) AS kinds (name, options) CROSS JOIN {readers} AS readers (name)
WHERE {lane_of_worker} AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
    AND queue.run_limit IS NULL AND queue.worker_limit IS NULL

-- name: take_turn
-- Wait until no other claim on the same queues has its turn, and take it until the transaction ends. It needs a statement
-- of its own: a claim sees the rows as of its start, and that must come after the wait.
SELECT pg_advisory_xact_lock('holdfast.live'::regclass::oid::integer, hashtext(array_to_string(:queues::text[], ',')))
WHERE set_config('lock_timeout', :milliseconds::text, true) IS NOT NULL

-- name: claim_few
-- Claim the best ready jobs for free slots, in one order over all lanes. PostgreSQL prepares every part of "claim" each
-- time; this has fewer of them. Each row has the number of the best jobs: some may be locked by other claims. With a
-- poison suspect among them none is claimed: "claim" counts the room for suspects. A row without a job comes then.
WITH best AS (              -- read without locks: no other rows are locked then
    -- planner: LATERAL with LIMIT reads the first entries of each lane in live_ready; a join sorts all ready jobs.
    SELECT candidate.*, lane.queue, lane.kind, lane.reader
    FROM ({lanes}) AS lane CROSS JOIN LATERAL ({next_in_lane} LIMIT :free::bigint) AS candidate
    ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT :free::bigint
), claimed AS (
    {begin_lease}
    -- planner: = ANY(ARRAY(...)) keeps the primary key; UPDATE ... FROM a CTE scans the whole table.
    WHERE live.id = ANY(ARRAY(
            SELECT live.id FROM best CROSS JOIN LATERAL (   -- it may have changed since it was read
                SELECT id FROM holdfast.live
                WHERE state = 'ready' AND holdfast.same(queue, best.queue) AND holdfast.same(kind, best.kind)
                    AND holdfast.same(reader, best.reader) AND priority = best.priority AND due_at = best.due_at AND id = best.id AND losses = best.losses
                FOR UPDATE SKIP LOCKED) AS live
            WHERE NOT EXISTS (SELECT FROM best WHERE losses > 1)))
        AND request.id = live.id
    {lease}
)
SELECT best.jobs, claimed.* FROM (SELECT count(*) AS jobs FROM best) AS best LEFT JOIN claimed ON true

-- name: claim
-- Claim the best ready jobs, in one order over all lanes.
WITH lane AS ({lanes}
), filled AS (              -- the lanes that have jobs
    -- planner: LATERAL with LIMIT reads the first entries of each lane in live_ready; a join sorts all ready jobs.
    SELECT lane.*, candidate.id, candidate.priority, candidate.due_at
    FROM lane CROSS JOIN LATERAL ({next_in_lane} LIMIT 1) AS candidate
), size AS (                -- how many jobs to claim, and how many of each lane to read at first: few if lanes are many
    SELECT lanes, jobs, least(jobs, 4 + 2 * jobs / greatest(1, lanes)) AS depth
    FROM (SELECT count(*) AS lanes, :free::bigint + :ahead::bigint AS jobs FROM filled) AS counted
), front AS (               -- as many jobs are of as many lanes at most, of those with the best first jobs
    SELECT queue, kind, reader, slot_only, least FROM filled
    ORDER BY priority DESC, due_at, id LIMIT (SELECT jobs FROM size)
), first AS (               -- the best of those; from_lane: how many of them are of the same lane
    SELECT *, count(*) OVER (PARTITION BY queue, kind, reader) AS from_lane
    FROM (
        SELECT lane.*, candidate.id, candidate.priority, candidate.due_at
        FROM front AS lane CROSS JOIN LATERAL ({next_in_lane} LIMIT (SELECT depth FROM size)) AS candidate
        WHERE (SELECT lanes FROM size) > 1
        ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT (SELECT jobs FROM size)) AS candidate
), best AS (                -- how many of the best jobs each lane has, read without locks: no other rows are locked then
    SELECT queue, kind, reader, slot_only, least, jobs FROM filled CROSS JOIN size WHERE lanes = 1
    UNION ALL               -- least: what another claim takes meanwhile is not replaced by a job of lower priority
    SELECT queue, kind, reader, slot_only, greatest(least, min(min(priority)) OVER ()), count(*)
    FROM (
        SELECT queue, kind, reader, slot_only, least, id, priority, due_at FROM first
        WHERE from_lane < (SELECT depth FROM size)
        UNION ALL           -- a lane that was read to its depth may have more of the best jobs
        SELECT lane.*, candidate.id, candidate.priority, candidate.due_at
        FROM (
            SELECT DISTINCT queue, kind, reader, slot_only, least FROM first
            WHERE from_lane = (SELECT depth FROM size)) AS lane
        CROSS JOIN LATERAL ({next_in_lane} LIMIT (SELECT jobs FROM size)) AS candidate
        ORDER BY priority DESC, due_at, id LIMIT (SELECT jobs FROM size)) AS candidate
    GROUP BY queue, kind, reader, slot_only, least
), locked_best AS ({lock_best}
), missed AS (              -- how many of the best jobs other claims have taken meanwhile
    SELECT sum(jobs) - (SELECT count(*) FROM locked_best) AS jobs FROM best WHERE (SELECT lanes FROM size) > 1
), locked AS (              -- the next ones of all lanes replace them
    SELECT * FROM locked_best
    UNION ALL
    (SELECT candidate.id, candidate.priority, candidate.due_at, candidate.losses,
        {is_slot_only}, lane.queue
    FROM (SELECT filled.*, best.jobs FROM filled LEFT JOIN best USING (queue, kind, reader)) AS lane
    CROSS JOIN LATERAL (    -- a lane begins with the jobs that are locked above
        {next_in_lane} LIMIT (SELECT jobs FROM missed) + coalesce(lane.jobs, 0) FOR UPDATE SKIP LOCKED) AS candidate
    WHERE (SELECT jobs FROM missed) > 0 AND NOT candidate.id = ANY(ARRAY(SELECT id FROM locked_best))
    ORDER BY candidate.priority DESC, candidate.due_at, candidate.id LIMIT (SELECT jobs FROM missed))
), {claim_locked}

-- fragment: is_restricted
-- Whether the queue of a lane is paused or has a limit: only a full claim serves it.
-- planner: the array is made once; EXISTS looks the queue up for each of 500 lanes.
lane.queue = ANY(ARRAY(
    SELECT name FROM holdfast.queue WHERE name = ANY(:queues::text[])
        AND (paused OR run_limit IS NOT NULL OR worker_limit IS NOT NULL)))

-- fragment: job_in_gap
-- A ready job of a lane and a priority at which the worker knows no position.
SELECT FROM unnest(:gap_queue::text[], :gap_kind::text[], :gap_low::integer[], :gap_high::integer[])
    AS lane (queue, kind, low, high)
CROSS JOIN LATERAL (
    SELECT FROM holdfast.live WHERE state = 'ready' AND holdfast.same(queue, lane.queue) AND holdfast.same(kind, lane.kind)
        AND holdfast.same(reader, '') AND priority BETWEEN lane.low AND lane.high LIMIT 1) AS job
WHERE NOT {is_restricted}

-- name: find_job_elsewhere
-- Find out whether a job waits in a lane, or at a priority, at which the worker knows no position.
SELECT true WHERE EXISTS ({job_in_gap})

-- name: list_lane_heads
-- List the first ready job of each lane.
-- planner: LATERAL with LIMIT reads one entry of live_ready for each lane; a join reads all ready jobs.
SELECT queues.name AS queue, kinds.name AS kind, head.priority, head.due_at, head.id AS job_id
FROM unnest(:queues::text[]) AS queues (name) CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
CROSS JOIN LATERAL (
    SELECT priority, due_at, id FROM holdfast.live
    WHERE state = 'ready' AND holdfast.same(queue, queues.name) AND holdfast.same(kind, kinds.name)
        AND holdfast.same(reader, '')
    ORDER BY priority DESC, due_at, id LIMIT 1) AS head

-- name: claim_onward
-- Claim the next jobs of known lanes, each from the position behind the last job that the worker claimed there. The index
-- keeps the entries of jobs that have left the lane for as long as any transaction may see them, and a scan from the start
-- of the lane reads all of them. A lane may come twice: for jobs that became ready before the position, and from it on.
WITH lane AS (              -- the best first
    SELECT * FROM unnest(:lane_queue::text[], :lane_kind::text[], :lane_priority::integer[], :lane_due_at::timestamptz[],
        :lane_job_id::bigint[], :lane_most::bigint[], :lane_until::timestamptz[], :lane_until_id::bigint[],
        :lane_slot_only::boolean[])
        AS lane (queue, kind, priority, due_at, id, most, until, until_id, slot_only)
), locked AS (
    SELECT candidate.id, candidate.priority, candidate.due_at, {is_slot_only} AS slot_only
    FROM lane CROSS JOIN LATERAL (
        -- planner: LATERAL with LIMIT reads live_ready from the position on; priority and positions bound the scan.
        SELECT id, priority, due_at, losses, no_prefetch FROM holdfast.live
        WHERE state = 'ready' AND holdfast.same(queue, lane.queue) AND holdfast.same(kind, lane.kind)
            AND holdfast.same(reader, '') AND priority = lane.priority AND (due_at, id) > (lane.due_at, lane.id)
            AND (due_at, id) < (lane.until, lane.until_id) AND losses = 0
        ORDER BY due_at, id LIMIT lane.most FOR UPDATE SKIP LOCKED) AS candidate
    WHERE NOT EXISTS (SELECT FROM holdfast.stop_switch) AND NOT EXISTS ({job_in_gap})
        AND NOT {is_restricted}
    LIMIT :free::bigint + :ahead::bigint
)
{begin_lease}
-- planner: = ANY(ARRAY(...)) keeps the primary key; UPDATE ... FROM a CTE scans the whole table.
-- planner: CASE leaves out the ranks in the common case, in which every locked job is claimed.
WHERE live.id = ANY(CASE
    WHEN :ahead::bigint = 0 OR NOT EXISTS (SELECT FROM locked WHERE slot_only) THEN ARRAY(SELECT id FROM locked)
    ELSE ARRAY(             -- a prefix that ends before the first job that needs a free slot
        SELECT id FROM (
            SELECT id, place, min(place) FILTER (WHERE slot_only AND place > :free::bigint) OVER () AS end_place
            FROM (SELECT id, slot_only, row_number() OVER (ORDER BY priority DESC, due_at, id) AS place FROM locked
                ) AS ranked) AS ranked
        WHERE place <= :free::bigint OR end_place IS NULL OR place < end_place) END)
    AND request.id = live.id
{lease}

-- name: claim_limited
-- Claim from all queues, up to the free slots of limited ones. The caller holds their locks (lock_limited_queues).
-- The counts must not share a statement with the locks: they would see the rows as of before the wait.
WITH capacity AS (          -- free slots per queue: the smaller of the global and the per-worker limit
    SELECT queues.name, queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL AS limited,
        {least_priority} AS least,
        greatest(0, coalesce(least(queue.run_limit - running.everywhere, queue.worker_limit - running.here),
            :free::bigint + :ahead::bigint)) AS slots
    FROM unnest(:queues::text[]) AS queues (name) LEFT JOIN holdfast.queue ON queue.name = queues.name
    CROSS JOIN LATERAL (
        SELECT count(*) AS everywhere, count(*) FILTER (WHERE live.worker = :worker) AS here
        FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) AS running
    WHERE NOT EXISTS (SELECT FROM holdfast.stop_switch)
), lane AS (                -- jobs of limited queues are never prefetched
    SELECT queues.name AS queue, kinds.name AS kind, readers.name AS reader, queues.slots, queues.least,
        queues.limited OR NOT (kinds.options->>'short')::boolean AS slot_only
    FROM capacity AS queues CROSS JOIN jsonb_each(:kinds::jsonb) AS kinds (name, options)
    CROSS JOIN {readers} AS readers (name)
    WHERE {lane_of_worker} AND queues.slots > 0
), best AS (                -- as in claim, but at most as many jobs per queue as it has slots
    SELECT queue, kind, reader, slot_only, greatest(least, min(min(priority)) OVER ()) AS least, count(*) AS jobs
    FROM (
        SELECT queue, kind, reader, slot_only, least, priority
        FROM (
            SELECT lane.*, candidate.id, candidate.priority, candidate.due_at, row_number() OVER (
                PARTITION BY lane.queue ORDER BY candidate.priority DESC, candidate.due_at, candidate.id) AS place
            FROM lane
            CROSS JOIN LATERAL ({next_in_lane} LIMIT least(lane.slots, :free::bigint + :ahead::bigint)) AS candidate
        ) AS ranked_in_queue
        WHERE place <= slots
        ORDER BY priority DESC, due_at, id LIMIT :free::bigint + :ahead::bigint) AS first
    GROUP BY queue, kind, reader, slot_only, least
), locked_best AS ({lock_best}
), missed AS (              -- how many of the best jobs other transactions have locked
    SELECT sum(jobs) - (SELECT count(*) FROM locked_best) AS jobs FROM best
), locked AS (              -- the next ones of all lanes replace them, as far as their queues have slots
    SELECT * FROM locked_best
    UNION ALL
    (SELECT id, priority, due_at, losses, slot_only, queue
    FROM (
        SELECT candidate.*, lane.queue, lane.slots,
            {is_slot_only} AS slot_only, row_number() OVER (
                PARTITION BY lane.queue ORDER BY candidate.priority DESC, candidate.due_at, candidate.id) AS place
        FROM (SELECT lane.*, best.jobs FROM lane LEFT JOIN best USING (queue, kind, reader)) AS lane
        CROSS JOIN LATERAL (
            {next_in_lane} LIMIT (SELECT jobs FROM missed) + coalesce(lane.jobs, 0) FOR UPDATE SKIP LOCKED) AS candidate
        WHERE (SELECT jobs FROM missed) > 0 AND NOT candidate.id = ANY(ARRAY(SELECT id FROM locked_best))
    ) AS next_in_queue
    WHERE place <= slots - (SELECT count(*) FROM locked_best WHERE locked_best.queue = next_in_queue.queue)
    ORDER BY priority DESC, due_at, id LIMIT (SELECT jobs FROM missed))
), {claim_locked}

-- name: list_claimable
-- List the best jobs that wait and that a worker could claim, if its shards made room. :shards counts its shards by
-- queue: a queue that has reached its limit can serve as many jobs as it has shards here. A paused queue serves none.
WITH capacity AS (          -- free places of the queue (NULL without a limit), and how many of its jobs are listed
    SELECT queues.name, limits.room,
        coalesce(limits.room + coalesce((:shards::jsonb->queues.name->>'count')::bigint, 0), :limit::bigint) AS jobs
    FROM unnest(:queues::text[]) AS queues (name) LEFT JOIN LATERAL (
        SELECT queue.paused, CASE WHEN queue.run_limit IS NOT NULL OR queue.worker_limit IS NOT NULL THEN (
            SELECT greatest(0, least(queue.run_limit - count(*),
                queue.worker_limit - count(*) FILTER (WHERE live.worker = :worker)))
            FROM holdfast.live WHERE live.queue = queue.name AND live.lease_expires_at IS NOT NULL) END AS room
        FROM holdfast.queue WHERE queue.name = queues.name LIMIT 1) AS limits ON true
    WHERE limits.paused IS NOT TRUE AND NOT EXISTS (SELECT FROM holdfast.stop_switch)
), lane AS (
    SELECT queues.name AS queue, kinds.name AS kind, readers.name AS reader, queues.room, queues.jobs,
        -2147483648 AS least
    FROM capacity AS queues CROSS JOIN unnest(:kinds::text[]) AS kinds (name)
    CROSS JOIN {readers} AS readers (name)
), ranked_in_queue AS (           -- planner: LATERAL with LIMIT reads the first entries of each lane in live_ready
    SELECT first.id, lane.queue, first.priority, first.due_at, lane.room, lane.jobs, row_number() OVER (
        PARTITION BY lane.queue ORDER BY first.priority DESC, first.due_at, first.id) AS place
    FROM lane CROSS JOIN LATERAL ({next_in_lane} LIMIT least(lane.jobs, :limit::bigint)) AS first
)
SELECT queue, priority, (SELECT label FROM holdfast.job WHERE job.id = ranked_in_queue.id) AS label, room
FROM ranked_in_queue WHERE place <= jobs ORDER BY priority DESC, due_at, id LIMIT :limit::bigint

-- name: read_requests
-- Read the requests for a holder whose leases need no renewal yet.
SELECT id AS job_id, false AS renewed, requested FROM holdfast.live
WHERE {held}

-- name: renew_leases
-- Renew all leases of a worker, record the starts of jobs that have begun, and return requests for the holder.
-- A user's long transaction on one job must not cost the other leases: SKIP LOCKED leaves that row out. Its lease is
-- still valid, and is reported as not renewed.
WITH owned AS (
    SELECT id, requested FROM holdfast.live
    WHERE {held}
), renewed AS (
    UPDATE holdfast.live SET
        lease_expires_at = (SELECT holdfast.now())
            + (:leases.lease_duration::bigint[])[{place}] * interval '1 microsecond',
        attempts = attempts + CASE
            WHEN started_at IS NULL AND (:leases.mark::boolean[])[{place}] THEN 1 ELSE 0 END,
        started_at = CASE
            WHEN started_at IS NULL AND (:leases.mark::boolean[])[{place}] THEN (SELECT holdfast.now())
            ELSE started_at END
    WHERE id = ANY(ARRAY(
            SELECT id FROM holdfast.live WHERE id = ANY(:leases.id::bigint[])
            ORDER BY id FOR UPDATE SKIP LOCKED))
        AND {has_token}
    RETURNING id
)
SELECT id AS job_id, id IN (SELECT id FROM renewed) AS renewed, requested FROM owned

-- name: record_starts
-- Record durable starts: from now on the loss of the holder costs an attempt. A locked row is left out, as in renew_leases.
UPDATE holdfast.live SET attempts = attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
    started_at = coalesce(started_at, (SELECT holdfast.now()))
WHERE id = ANY(ARRAY(
        SELECT id FROM holdfast.live WHERE id = ANY(:leases.id::bigint[])
        ORDER BY id FOR UPDATE SKIP LOCKED))
    AND {has_token}
RETURNING id

-- name: settle_done
-- Finish jobs that succeeded: delete the live row, append the finished one. A column without values is NULL.
WITH deleted AS (
    DELETE FROM holdfast.live WHERE {brief_lock_wait} AND {where} AND {held}
    RETURNING *, {place} AS place
), inserted AS (
    INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
        started_at, finished_at, reason, result, error)
    SELECT id, 'done', queue, kind, priority, due_at, attempts + CASE WHEN started_at IS NULL THEN 1 ELSE 0 END,
        crashes, token, worker,
        coalesce((SELECT holdfast.now()) - (:leases.ran::bigint[])[place] * interval '1 microsecond',
            started_at, claimed_at),
        (SELECT holdfast.now()) - coalesce((:leases.age::bigint[])[place] * interval '1 microsecond', '0 s'), 'done',
        (:leases.result::jsonb->>(place - 1))::json, :leases.error::jsonb->>(place - 1)
    FROM deleted
)
SELECT id, has_dependents FROM deleted

-- name: list_unsettled
-- Find out why settlements changed no row: recorded before, so that a repeated settle is a success, or locked by
-- another transaction. The leases of the others are lost.
SELECT id, 'recorded' AS result FROM holdfast.finished
WHERE id = ANY(:leases.id::bigint[]) AND token = (:leases.token::bigint[])[{place}] AND worker = :worker
    AND reason = :leases.reason::jsonb->>({place} - 1)
UNION
SELECT id, 'recorded'
FROM (SELECT job_id AS id, token, worker, reason FROM holdfast.attempt
    WHERE job_id = ANY(:leases.id::bigint[])) AS attempt
WHERE token = (:leases.token::bigint[])[{place}] AND worker = :worker AND reason = :leases.reason::jsonb->>({place} - 1)
UNION
SELECT id, 'locked' FROM holdfast.live WHERE {held}

-- name: unlocked_leases
-- Condition: a lease whose row no other transaction has locked.
live.id = ANY(ARRAY(
    SELECT id FROM holdfast.live WHERE id = ANY(:leases.id::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED))

-- name: lock_leases
-- Lock running jobs and read the numbers that judge() needs. The locks last until the verdict is written.
SELECT {lease_columns} FROM {live_with_job}
WHERE {brief_lock_wait} AND {where}
    AND live.id = ANY(:leases.id::bigint[]) AND live.state = 'running' AND live.worker = :worker
    AND live.token = (:leases.token::bigint[])[width_bucket(live.id, :leases.id::bigint[])]
ORDER BY live.id FOR UPDATE OF live

-- name: return_jobs
-- Return running jobs to ready, scheduled or held. raised is 1 on take-over, so that the old token is refused.
UPDATE holdfast.live SET
    state = :verdict::jsonb->id::text->>'state',
    attempts = (:verdict::jsonb->id::text->>'attempts')::integer,
    crashes = (:verdict::jsonb->id::text->>'crashes')::integer,
    token = token + (:verdict::jsonb->id::text->>'raised')::integer,
    losses = (:verdict::jsonb->id::text->>'losses')::smallint,
    note = coalesce(:verdict::jsonb->id::text->>'note',
        CASE WHEN :verdict::jsonb->id::text->>'state' = 'held' THEN note END),
    reader = coalesce(:verdict::jsonb->id::text->>'reader', reader),
    refusals = coalesce((:verdict::jsonb->id::text->>'refusals')::json, refusals),
    due_at = coalesce((SELECT holdfast.now()) + (:verdict::jsonb->id::text->>'delay')::interval, due_at),
    requested = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, lease_expires_at = NULL
WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:verdict::jsonb)::bigint))
    AND token = (:verdict::jsonb->id::text->>'token')::bigint
    AND worker = :verdict::jsonb->id::text->>'worker' AND state = 'running'

-- name: finish_jobs
-- Finish running jobs as dead or cancelled.
WITH deleted AS (
    DELETE FROM holdfast.live
    WHERE id = ANY(ARRAY(SELECT jsonb_object_keys(:verdict::jsonb)::bigint))
        AND token = (:verdict::jsonb->id::text->>'token')::bigint
    AND worker = :verdict::jsonb->id::text->>'worker' AND state = 'running'
    RETURNING *, :verdict::jsonb->id::text AS verdict
)
INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker,
    started_at, finished_at, reason, error)
SELECT id, verdict->>'state', queue, kind, priority, due_at, (verdict->>'attempts')::integer,
    (verdict->>'crashes')::integer, token + (verdict->>'raised')::integer, worker,
    coalesce((SELECT holdfast.now()) - (verdict->>'ran')::interval, started_at, claimed_at),
    (SELECT holdfast.now()) - (verdict->>'age')::interval, verdict->>'reason', verdict->>'error'
FROM deleted

-- name: pause_queues_of_failed
-- Pause the queues of commands that have failed for good and request it, with the newest one in the note.
INSERT INTO holdfast.queue AS existing (name, paused, note)
SELECT queue, true, 'job ' || id || ' failed (' || reason || ')'
FROM holdfast.finished AS finished
WHERE id IN (
    SELECT max(id) FROM holdfast.finished AS finished
    WHERE id = ANY(:ids::bigint[]) AND (SELECT payload->>'pause_queue' FROM holdfast.job WHERE job.id = finished.id) = 'true'
    GROUP BY queue)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, note = excluded.note

-- name: release_unstarted
-- Return prefetched jobs that have not started to the queue, at no cost and without a trace.
UPDATE holdfast.live SET state = 'ready', worker = NULL, claimed_at = NULL, lease_expires_at = NULL
WHERE {held} AND started_at IS NULL
    AND requested IS NULL
RETURNING id

-- name: read_next_due
-- Read the time until the next scheduled job is due. It is negative when one is overdue.
SELECT due_at - (SELECT holdfast.now()) AS wait FROM holdfast.live WHERE state = 'scheduled' AND {where}
ORDER BY due_at, id LIMIT 1

-- name: list_orphans
-- List live rows without a request where they take a place: among the first ready jobs of each lane, and the expired
-- leases. No claim and no take-over returns them.
WITH RECURSIVE {lanes_with_jobs}
), occupied (id) AS (
    -- planner: LATERAL with LIMIT reads the first entries of each lane in live_ready; a join reads all ready jobs.
    SELECT first.id FROM lane CROSS JOIN LATERAL (
        SELECT id FROM holdfast.live
        WHERE state = 'ready' AND holdfast.same(live.queue, lane.queue) AND holdfast.same(live.kind, lane.kind)
            AND holdfast.same(live.reader, '')
        ORDER BY priority DESC, due_at, id LIMIT :limit::bigint) AS first
    UNION ALL
    SELECT id FROM (SELECT id FROM holdfast.live WHERE lease_expires_at < (SELECT holdfast.now())
        ORDER BY queue, lease_expires_at LIMIT :limit::bigint) AS expired
)
SELECT id FROM occupied WHERE NOT EXISTS (SELECT FROM holdfast.job WHERE job.id = occupied.id)
