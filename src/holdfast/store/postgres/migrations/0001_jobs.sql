-- Jobs on PostgreSQL.
--
-- A job is three rows in its life: what was asked (job, written once), where it stands
-- (live, narrow and hot), and how it finished (finished, appended). Ending deletes the live row,
-- so that claims never meet what has finished, and the payload is never copied.
-- There are no foreign keys: the hot path does not pay for them, and the store's own
-- tests hold these tables together.

CREATE TABLE holdfast.meta (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    installation uuid NOT NULL DEFAULT gen_random_uuid(),
    version integer NOT NULL,
    oldest_code integer NOT NULL
);

-- The one clock. Tests replace this function to move time.
CREATE FUNCTION holdfast.now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT clock_timestamp()';

CREATE TABLE holdfast.kind (
    name text PRIMARY KEY,
    options json NOT NULL,
    payload_schema json NOT NULL,
    version text,
    published_at timestamptz NOT NULL
);

CREATE TABLE holdfast.queue (
    name text PRIMARY KEY,
    run_limit integer CHECK (run_limit > 0),
    worker_limit integer CHECK (worker_limit > 0),
    paused boolean NOT NULL DEFAULT false,
    note text
);

CREATE TABLE holdfast.worker (
    id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    version text,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    stopped_at timestamptz
);

-- Ids are drawn before the insert, so that an enqueue without an answer can be sent again.
CREATE SEQUENCE holdfast.job_id;

-- What was asked.
CREATE TABLE holdfast.job (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    payload json NOT NULL,
    label text,
    tags json,
    key text,
    parent_id bigint,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    max_attempts integer,
    max_crashes integer,
    on_lost text NOT NULL CHECK (on_lost IN ('retry', 'dead', 'hold')),
    retry json,
    after_when text CHECK (after_when IN ('done', 'finished', 'failed')),
    after_failed text CHECK (after_failed IN ('cancel', 'hold'))
);
CREATE INDEX job_label ON holdfast.job (label text_pattern_ops, id) WHERE label IS NOT NULL;
CREATE INDEX job_key ON holdfast.job (key, id) WHERE key IS NOT NULL;

-- Where it stands.
CREATE TABLE holdfast.live (
    id bigint PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('held', 'waiting', 'scheduled', 'ready', 'running')),
    queue text NOT NULL,
    kind text NOT NULL,
    priority integer NOT NULL,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    crashes integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    no_prefetch boolean NOT NULL DEFAULT false,    -- never prefetched, every start started: on_lost, or poison_suspect
    poison_suspect boolean NOT NULL DEFAULT false,    -- its last holder was lost before a started start
    has_dependents boolean NOT NULL DEFAULT false,     -- other jobs may wait for it
    requested text CHECK (requested IN ('cancel', 'pause')),  -- what a person asks of its holder
    worker text,
    claimed_at timestamptz,
    started_at timestamptz,                    -- the start mark: from here on a loss costs an attempt
    lease_expires_at timestamptz,
    note text,
    CHECK ((state = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((state = 'running') = (worker IS NOT NULL)),
    CHECK ((state = 'running') = (claimed_at IS NOT NULL)),
    CHECK (state = 'running' OR started_at IS NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The claim reads this index and nothing else: only ready jobs are in it, in their order.
CREATE INDEX live_ready ON holdfast.live (queue, kind, priority DESC, due_at, id) WHERE state = 'ready';
CREATE INDEX live_scheduled ON holdfast.live (id) WHERE state = 'scheduled';
CREATE INDEX live_due ON holdfast.live (due_at, id) WHERE state = 'scheduled';
CREATE INDEX live_waiting ON holdfast.live (id) WHERE state = 'waiting';
CREATE INDEX live_held ON holdfast.live (id) WHERE state = 'held';
-- Its condition is not "state = 'running'", so that no plan for a settle can be lured to it.
CREATE INDEX live_running ON holdfast.live (queue, lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- How it ended.
CREATE TABLE holdfast.finished (
    id bigint PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('done', 'dead', 'cancelled')),
    queue text NOT NULL,
    kind text NOT NULL,
    priority integer NOT NULL,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    token bigint NOT NULL,
    worker text,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    reason text,
    error text,
    result json
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX finished_when ON holdfast.finished (state, finished_at, id);
CREATE INDEX finished_trouble ON holdfast.finished (state, id) WHERE state <> 'done';

-- The moves of a job among live states, as in domain/job.py. Ending and reviving change the table.
-- The claim's own move is asked for first: it is by far the most frequent.
CREATE FUNCTION holdfast.refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % cannot move from % to %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER live_moves BEFORE UPDATE OF state ON holdfast.live FOR EACH ROW
    WHEN ((OLD.state <> 'ready' OR NEW.state <> 'running') AND OLD.state <> NEW.state
        AND OLD.state || '>' || NEW.state NOT IN (
        'held>waiting', 'held>scheduled', 'held>ready',
        'waiting>scheduled', 'waiting>ready', 'waiting>held',
        'scheduled>ready', 'scheduled>held',
        'ready>running', 'ready>scheduled', 'ready>held',
        'running>ready', 'running>scheduled', 'running>held'))
    EXECUTE FUNCTION holdfast.refuse_move();

-- Who dependencies whom.
CREATE TABLE holdfast.dependency (
    job_id bigint NOT NULL,
    dependency_id bigint NOT NULL,
    PRIMARY KEY (job_id, dependency_id)
);
CREATE INDEX dependency_by_dependency ON holdfast.dependency (dependency_id);

-- Unique keys. A key outlives its job's rows when it is taken for ever.
CREATE TABLE holdfast.key (
    kind text NOT NULL,
    key text NOT NULL,
    job_id bigint NOT NULL,
    scope text NOT NULL CHECK (scope IN ('live', 'period', 'forever')),
    expires_at timestamptz,
    PRIMARY KEY (kind, key),
    CHECK ((scope = 'period') = (expires_at IS NOT NULL))
);
CREATE INDEX key_job ON holdfast.key (job_id);
CREATE INDEX key_expiry ON holdfast.key (expires_at) WHERE expires_at IS NOT NULL;

-- Runs that did not simply succeed. A run that did is read from the job's own columns.
CREATE TABLE holdfast.attempt (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    number integer NOT NULL,
    worker text,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    reason text NOT NULL,
    exit_code integer,
    error text,
    PRIMARY KEY (job_id, token)
);

CREATE TABLE holdfast.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    at timestamptz NOT NULL,
    name text NOT NULL,
    actor text NOT NULL,
    detail json
);
CREATE INDEX event_job ON holdfast.event (job_id, id);

-- What a running handler tells, and what it hands to its next attempt.
CREATE TABLE holdfast.progress (
    job_id bigint PRIMARY KEY,
    done bigint,
    total bigint,
    message text,
    checkpoint json,
    at timestamptz NOT NULL
) WITH (fillfactor = 70);

-- What a handler has finished for good, or sleeps for, across its attempts.
CREATE TABLE holdfast.step (
    job_id bigint NOT NULL,
    name text NOT NULL,
    result json,
    until timestamptz,
    PRIMARY KEY (job_id, name)
);

-- A job as people see it, while it is live and when it has ended. A list asks both, each for a page.
CREATE VIEW holdfast.live_view AS
    SELECT live.id, live.kind, live.queue, live.state, live.priority, live.due_at, job.label, job.tags::text,
        job.key, job.payload::text, job.parent_id, job.actor, job.created_at, live.attempts, job.max_attempts,
        live.crashes, job.max_crashes, job.on_lost, job.retry::text, job.after_when, job.after_failed, live.token,
        live.poison_suspect, live.requested, live.worker, live.claimed_at, live.started_at, live.lease_expires_at, live.note,
        NULL::timestamptz AS finished_at, NULL::text AS reason, NULL::text AS error, NULL::text AS result,
        told.done AS progress_done, told.total AS progress_total, told.message AS progress_message,
        told.checkpoint::text, false AS is_finished
    FROM holdfast.live LEFT JOIN holdfast.job ON job.id = live.id LEFT JOIN holdfast.progress AS told ON told.job_id = live.id;
CREATE VIEW holdfast.finished_view AS
    SELECT finished.id, finished.kind, finished.queue, finished.state, finished.priority, finished.due_at, job.label, job.tags::text,
        job.key, job.payload::text, job.parent_id, job.actor, job.created_at, finished.attempts, job.max_attempts,
        finished.crashes, job.max_crashes, job.on_lost, job.retry::text, job.after_when, job.after_failed, finished.token,
        false AS poison_suspect, NULL::text AS requested, finished.worker, NULL::timestamptz AS claimed_at, finished.started_at,
        NULL::timestamptz AS lease_expires_at, NULL::text AS note, finished.finished_at, finished.reason, finished.error,
        finished.result::text, told.done AS progress_done, told.total AS progress_total,
        told.message AS progress_message, told.checkpoint::text, true AS is_finished
    FROM holdfast.finished LEFT JOIN holdfast.job ON job.id = finished.id LEFT JOIN holdfast.progress AS told ON told.job_id = finished.id;

-- Enqueue from plain SQL, in the caller's transaction: SELECT holdfast.enqueue('mail', '{"to": 7}').
-- The kind must be published; what is not said comes from its options. When the key is taken,
-- the id of the job that has it is returned.
CREATE FUNCTION holdfast.enqueue(
    kind text,
    payload json DEFAULT '{}',
    queue text DEFAULT NULL,
    priority integer DEFAULT NULL,
    delay interval DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    key text DEFAULT NULL,
    label text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    options json;
    timestamp timestamptz := holdfast.now();
    due timestamptz;
    new_id bigint;
    holder holdfast.key;
    unique_key text := enqueue.key;
    no_prefetch boolean;
BEGIN
    SELECT k.options INTO options FROM holdfast.kind k WHERE k.name = enqueue.kind;
    IF options IS NULL THEN
        RAISE EXCEPTION 'E_UNKNOWN_KIND: no application has registered kind "%"', enqueue.kind
            USING HINT = 'See SELECT name FROM holdfast.kind, or start a worker of the application that has it.';
    END IF;
    IF octet_length(payload::text) > 262144 THEN
        RAISE EXCEPTION 'E_PAYLOAD_TOO_LARGE: the payload takes % bytes; at most 262,144 are allowed',
            octet_length(payload::text) USING HINT = 'Keep the data elsewhere and enqueue its name.';
    END IF;
    IF json_typeof(payload) <> 'object' THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: a payload is a JSON object'
            USING HINT = 'Name the handler''s parameters: {"name": value}.';
    END IF;
    IF delay IS NOT NULL AND run_at IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: a delay and a run_at exclude each other';
    END IF;
    due := coalesce(run_at, timestamp + coalesce(delay, interval '0'));
    no_prefetch := options->>'on_lost' <> 'retry';
    new_id := nextval('holdfast.job_id');

    IF unique_key IS NULL AND json_array_length(options->'unique') > 0 THEN
        SELECT '[' || string_agg((payload->field)::text, ',' ORDER BY place) || ']' INTO unique_key
        FROM json_array_elements_text(options->'unique') WITH ORDINALITY AS named (field, place)
        HAVING count(payload->field) = count(*);
        IF unique_key IS NULL THEN
            RAISE EXCEPTION 'E_INVALID_PAYLOAD: the unique key of kind "%" dependencies the fields %',
                enqueue.kind, options->'unique' USING HINT = 'Name them in the payload, also those that have a default.';
        END IF;
    END IF;
    IF unique_key IS NOT NULL THEN
        INSERT INTO holdfast.key AS taken (kind, key, job_id, scope, expires_at)
        VALUES (enqueue.kind, unique_key, new_id, options->>'unique_scope',
            CASE WHEN options->>'unique_scope' = 'period'
                THEN timestamp + make_interval(secs => (options->>'unique_seconds')::float) END)
        ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET job_id = taken.job_id
        RETURNING * INTO holder;
        IF holder.job_id <> new_id THEN
            -- A new statement: it sees the job of whoever held the key when we waited.
            IF EXISTS (SELECT FROM holdfast.live WHERE live.id = holder.job_id)
                OR holder.scope = 'forever' OR holder.expires_at > timestamp THEN
                RETURN holder.job_id;
            END IF;
            UPDATE holdfast.key AS taken SET job_id = new_id, scope = options->>'unique_scope',
                expires_at = CASE WHEN options->>'unique_scope' = 'period'
                    THEN timestamp + make_interval(secs => (options->>'unique_seconds')::float) END
            WHERE taken.kind = enqueue.kind AND taken.key = unique_key;
        END IF;
    END IF;

    INSERT INTO holdfast.job (id, kind, payload, label, key, actor, created_at, max_attempts, max_crashes, on_lost, retry)
    VALUES (new_id, enqueue.kind, payload, label, unique_key, 'holdfast:sql', timestamp, (options->>'max_attempts')::integer,
        (options->>'max_crashes')::integer, options->>'on_lost', CASE WHEN json_typeof(options->'retry') = 'object' THEN options->'retry' END);
    INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at, no_prefetch)
    VALUES (new_id, CASE WHEN due > timestamp THEN 'scheduled' ELSE 'ready' END, coalesce(queue, options->>'queue'),
        enqueue.kind, coalesce(priority, (options->>'priority')::integer), due, no_prefetch);
    -- Wakes workers when the caller commits; the setting holdfast.notify = off switches it off.
    PERFORM pg_notify('holdfast.ready', '') WHERE current_setting('holdfast' || '.notify', true) IS DISTINCT FROM 'off';
    RETURN new_id;
END $$;
