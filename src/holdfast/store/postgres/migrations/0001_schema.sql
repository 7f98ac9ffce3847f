-- The schema on PostgreSQL.
--
-- A job has up to three rows: the request (job, written once), its present state (live, narrow and hot) and its
-- outcome (finished, appended). Finishing deletes the live row, so that claims never read finished jobs and the payload
-- is never copied. There are no foreign keys: they would slow down the hot path. The tests of the store check instead
-- that the tables agree.

-- ---- installation -------------------------------------------------------------------------------------------------

CREATE TABLE holdfast.meta (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    installation uuid NOT NULL DEFAULT gen_random_uuid(),
    version integer NOT NULL,
    oldest_code integer NOT NULL,              -- the oldest code that may use this schema
    checksums json NOT NULL,                   -- of the migrations, by number
    objects json NOT NULL                      -- the columns, indexes and functions after the last migration
);

-- One row per life of the server. The table is unlogged on purpose: a crash empties it and a failover does not copy it.
-- Transaction ids from before then mean nothing any more (postgres/commits.py).
CREATE UNLOGGED TABLE holdfast.epoch (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    id uuid NOT NULL
);

-- The history that this database writes, and what earlier ones may have given out: their ids and their tokens.
-- begin_timeline, below, fills it.
CREATE TABLE holdfast.timeline (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    history text NOT NULL,
    last_id bigint NOT NULL,                   -- jobs of earlier histories have ids up to this
    token_base bigint NOT NULL                 -- a claim of such a job gives a token above this
);

-- The only clock. Tests replace this function to move time.
CREATE FUNCTION holdfast.now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT clock_timestamp()';

-- ---- fleet: kinds, queues, workers, autoscaler --------------------------------------------------------------------

CREATE TABLE holdfast.kind (
    name text PRIMARY KEY,
    options json NOT NULL,
    payload_schema json NOT NULL,
    version integer NOT NULL,                  -- an older version never replaces a newer one
    published_at timestamptz NOT NULL,
    provisional boolean NOT NULL DEFAULT false -- only producers have published it: a worker replaces any version
);
-- The fields of payloads that views mask. What any code has declared once stays, also when other code publishes the kind
-- without it, and when the kind is deleted: its jobs hold the values. Only an admin removes a row.
CREATE TABLE holdfast.secret_field (
    kind text NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (kind, name)
);
-- BEFORE INSERT: it fires for a publication that does not replace a newer version, too. With the rights of the owner: no
-- role below admin writes the table.
CREATE FUNCTION holdfast.keep_secret_fields() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.secret_field SELECT NEW.name, field
    FROM json_array_elements_text(CASE json_typeof(NEW.options->'secrets') WHEN 'array' THEN NEW.options->'secrets'
        ELSE '[]' END) AS fields (field)
    WHERE field IS NOT NULL ON CONFLICT DO NOTHING;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION holdfast.keep_secret_fields() FROM PUBLIC;
CREATE TRIGGER kind_published BEFORE INSERT OR UPDATE OF name, options ON holdfast.kind FOR EACH ROW
    EXECUTE FUNCTION holdfast.keep_secret_fields();

CREATE TABLE holdfast.queue (
    name text PRIMARY KEY,
    run_limit integer CHECK (run_limit > 0),
    worker_limit integer CHECK (worker_limit > 0),
    paused boolean NOT NULL DEFAULT false,
    note text,
    scale_min integer CHECK (scale_min > 0),
    scale_max integer CHECK (scale_max > 0)
);

-- The switch that stops the whole store. While it has its row, no claim starts a job and no planner fires a plan.
CREATE TABLE holdfast.stop_switch (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    mode text NOT NULL CHECK (mode IN ('drain', 'stop')),
    actor text NOT NULL,
    note text,
    at timestamptz NOT NULL
);

-- The switch of commands. While it has its row, no worker runs a command.
CREATE TABLE holdfast.command_switch (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    switched_off_at timestamptz NOT NULL
);

CREATE TABLE holdfast.worker (
    id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    process text,                              -- identifies its process on its host; NULL: not known there
    version text,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    build text NOT NULL DEFAULT '',            -- names its code: workers of one build read the same payloads
    names text NOT NULL DEFAULT '{}',           -- the code behind its kinds and schedules, and its application: JSON
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    stopped_at timestamptz,
    autoscaler json,                           -- the state of its autoscaler
    slots integer,
    requested text CHECK (requested IN ('quiet', 'stop'))    -- read by the worker's next heartbeat
);

-- The peak memory of commands, by label: mean and variance over the last runs.
CREATE TABLE holdfast.memory_profile (
    name text PRIMARY KEY,
    samples integer NOT NULL,
    mean double precision NOT NULL,
    variance double precision NOT NULL,
    largest bigint NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX memory_profile_updated ON holdfast.memory_profile (updated_at);

CREATE TABLE holdfast.autoscaler_decision (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    queue text NOT NULL,
    host text NOT NULL,
    worker text NOT NULL,
    action text NOT NULL,
    job_id bigint,
    slots integer,
    text text NOT NULL
);
CREATE INDEX autoscaler_decision_queue ON holdfast.autoscaler_decision (queue, id);
CREATE INDEX autoscaler_decision_at ON holdfast.autoscaler_decision (at);

-- ---- jobs ---------------------------------------------------------------------------------------------------------

-- Ids are drawn before the insert, so that an enqueue without an answer can be sent again.
CREATE SEQUENCE holdfast.job_id;
-- All functions that name a search path name pg_temp last: by default a caller's temporary tables and types come first, and
-- their code would run with the rights of the owner.
--
-- Draw consecutive ids and return the first. All at once take a tenth of a call of nextval for each. A lock keeps others
-- from drawing between its two steps. The error at its end releases the lock, which would last as long as the transaction
-- of the caller; it leaves the sequence as it is. With the rights of the owner: setval could also give ids out again.
CREATE FUNCTION holdfast.draw_job_ids(count integer, OUT first bigint) LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.job_id', 0));
    first := nextval('holdfast.job_id');
    PERFORM setval('holdfast.job_id', first + greatest(count, 1) - 1);
    RAISE SQLSTATE 'HF001';
EXCEPTION WHEN SQLSTATE 'HF001' THEN NULL;
END $$;
REVOKE ALL ON FUNCTION holdfast.draw_job_ids(integer) FROM PUBLIC;

-- Begin a new history, if this database does not write that of the last call. A promotion, a point-in-time restore, the
-- restore of a dump and a copy to another server begin one; a crash does not. The end of the old one may be lost, and with
-- it ids and tokens that workers and callers know. So all sequences go on a million later, and tokens at the milliseconds
-- since 1970, which no claim has counted up to. Every new session calls it before it does anything else, and has the columns
-- of the table as settings from then on: a claim would need longer to read them. Returns whether it began a history. On a
-- server that does not show what it writes, nothing happens.
CREATE FUNCTION holdfast.begin_timeline() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number oid := 'holdfast.timeline'::regclass;      -- another one after the restore of a dump
    present text;
    began boolean := false;
    sequence regclass;
    last bigint;
    base bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN false;
    END IF;
    present := (SELECT system_identifier FROM pg_control_system()) || '/'
        || left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || number;
    IF present IS DISTINCT FROM (SELECT history FROM holdfast.timeline) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.job_id', 0));    -- that of draw_job_ids
        INSERT INTO holdfast.timeline (history, last_id, token_base) VALUES (present, 0, 0) ON CONFLICT DO NOTHING;
        IF present <> (SELECT history FROM holdfast.timeline) THEN
            FOR sequence IN SELECT oid FROM pg_class WHERE relkind = 'S'
                AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = number) LOOP
                EXECUTE format('SELECT setval(%L, last_value + 1000000) FROM %s', sequence, sequence) INTO last;
                IF sequence = 'holdfast.job_id'::regclass THEN
                    UPDATE holdfast.timeline SET history = present, last_id = last,
                        token_base = greatest(token_base + 1, floor(1000 * extract(epoch FROM clock_timestamp()))::bigint);
                END IF;
            END LOOP;
            began := true;
        END IF;
    END IF;
    SELECT last_id, token_base INTO last, base FROM holdfast.timeline;
    PERFORM set_config('holdfast' || '.last_id_' || number, last::text, false),
        set_config('holdfast' || '.token_base_' || number, base::text, false);
    RETURN began;
EXCEPTION WHEN insufficient_privilege OR object_not_in_prerequisite_state OR feature_not_supported THEN
    RETURN false;
END $$;
SELECT holdfast.begin_timeline();

-- Values that a column may have. They are domains and not CHECKs of the table: PostgreSQL reads the CHECKs of a table from
-- their texts at every statement, which took a third of the time of a single enqueue.
CREATE DOMAIN holdfast.live_state AS text CHECK (VALUE IN ('running', 'ready', 'scheduled', 'waiting', 'held'));
CREATE DOMAIN holdfast.on_lost AS text CHECK (VALUE IN ('retry', 'dead', 'hold'));
CREATE DOMAIN holdfast.after_when AS text CHECK (VALUE IN ('done', 'finished', 'failed'));
CREATE DOMAIN holdfast.after_failed AS text CHECK (VALUE IN ('cancel', 'hold'));
CREATE DOMAIN holdfast.run_seconds AS double precision CHECK (VALUE >= 0);
CREATE DOMAIN holdfast.due_time AS timestamptz
    CHECK (VALUE >= '1900-01-01 00:00+00' AND VALUE < '9000-01-01 00:00+00');
CREATE DOMAIN holdfast.attempt_count AS integer CHECK (VALUE >= 0);
CREATE DOMAIN holdfast.loss_count AS smallint CHECK (VALUE BETWEEN 0 AND 3);
CREATE DOMAIN holdfast.holder_request AS text CHECK (VALUE IN ('cancel', 'pause'));

-- The request of a job.
CREATE TABLE holdfast.job (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    kind_version integer NOT NULL DEFAULT 1,   -- of the code that wrote the payload
    payload json NOT NULL,
    label text,
    tags json,
    key text,
    parent_id bigint,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    max_attempts integer,
    max_crashes integer,
    on_lost holdfast.on_lost NOT NULL,
    retry json,
    timeout holdfast.run_seconds,              -- of one run, in seconds; 0: no limit; NULL: that of the kind
    after_when holdfast.after_when,
    after_failed holdfast.after_failed,
    nonce bigint,                              -- of the call that enqueued it: a call sent again has the same one
    plan json,                                 -- that it carries out: schedule, time and scope
    db_user text DEFAULT session_user          -- the login that enqueued it: a producer reads the results of its own jobs
);
CREATE INDEX job_label ON holdfast.job (label text_pattern_ops, id) WHERE label IS NOT NULL;
CREATE INDEX job_key ON holdfast.job (key, id) WHERE key IS NOT NULL;
CREATE INDEX job_created ON holdfast.job (created_at);

-- The jobs that have a tag. Triggers keep it, so that a copy of the store leaves it out. Its entries go with the job; an
-- inverted index would keep each tag that was ever used (docs/adr/0029-table-of-tags.md).
CREATE TABLE holdfast.job_tag (
    tag text NOT NULL,
    job_id bigint NOT NULL,
    CONSTRAINT job_tags PRIMARY KEY (tag, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE FUNCTION holdfast.keep_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        -- planner: an array is looked up tag by tag; a subquery reads the whole index.
        DELETE FROM holdfast.job_tag
        WHERE tag = ANY (ARRAY(SELECT json_array_elements_text(OLD.tags))) AND job_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO holdfast.job_tag SELECT json_array_elements_text(NEW.tags), NEW.id ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
-- Jobs without tags pay for one comparison.
CREATE TRIGGER job_inserted_tags AFTER INSERT ON holdfast.job FOR EACH ROW
    WHEN (NEW.tags IS NOT NULL) EXECUTE FUNCTION holdfast.keep_tags();
CREATE TRIGGER job_deleted_tags AFTER DELETE ON holdfast.job FOR EACH ROW
    WHEN (OLD.tags IS NOT NULL) EXECUTE FUNCTION holdfast.keep_tags();
CREATE TRIGGER job_changed_tags AFTER UPDATE OF tags ON holdfast.job FOR EACH ROW
    WHEN (OLD.tags::text IS DISTINCT FROM NEW.tags::text) EXECUTE FUNCTION holdfast.keep_tags();

-- The present state of a job.
CREATE TABLE holdfast.live (
    id bigint PRIMARY KEY,
    state holdfast.live_state NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    priority integer NOT NULL,
    due_at holdfast.due_time NOT NULL,
    attempts holdfast.attempt_count NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    no_prefetch boolean NOT NULL DEFAULT false,       -- claimed only for a free slot; its start is recorded before it runs
    losses holdfast.loss_count NOT NULL DEFAULT 0,    -- holders lost before a durable start: a suspect
    has_dependents boolean NOT NULL DEFAULT false,    -- other jobs may wait for it
    requested holdfast.holder_request,                -- read by the holder's next renewal
    worker text,
    claimed_at timestamptz,
    started_at timestamptz,                    -- the durable start: from here on a loss costs an attempt
    lease_expires_at timestamptz,
    note text,
    kind_version integer NOT NULL DEFAULT 1,   -- of the code that wrote the payload
    reader text NOT NULL DEFAULT '',           -- the only build that may claim it; '' means every build
    refusals json,                             -- the builds that could not read the payload, oldest first
    -- One condition, because every claim checks it: a lease consists of its holder, its claim and its end.
    CHECK (CASE state WHEN 'running' THEN worker IS NOT NULL AND claimed_at IS NOT NULL AND lease_expires_at IS NOT NULL
        ELSE coalesce(lease_expires_at, claimed_at, started_at) IS NULL AND worker IS NULL END)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- The claim reads only this index. It holds the ready jobs in claim order. A lane is a queue, a kind and a reader, so that
-- a worker never passes over jobs that its code cannot read. Their hashes take their place: PostgreSQL compares columns of
-- a fixed size faster, and with names this index was a third of the cost of an enqueue (docs/adr/0024-profile-of-a-drain.md).
CREATE INDEX live_ready ON holdfast.live (hashtextextended(queue, 0), hashtextextended(kind, 0),
    hashtextextended(reader, 0), priority DESC, due_at, id) WITH (deduplicate_items = off) WHERE state = 'ready';
-- Whether two names are the same. PostgreSQL puts the body in place of the call and finds the name in an index of hashes.
-- Two names may have the same hash, so the names are compared too. What searches for names goes from hash to hash: of the
-- names that share one it finds those of its first 20 jobs, and queues with settings. It takes intent to find such names.
CREATE FUNCTION holdfast.same(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended($1, 0) = hashtextextended($2, 0) AND $1 = $2;
-- Jobs that some build could not read. Held ones without a reader wait for a new build.
CREATE INDEX live_refused ON holdfast.live (reader, state, queue, kind, id) WHERE refusals IS NOT NULL;
CREATE INDEX live_scheduled ON holdfast.live (id) WHERE state = 'scheduled';
CREATE INDEX live_due ON holdfast.live (due_at, id) WHERE state = 'scheduled';
CREATE INDEX live_waiting ON holdfast.live (id) WHERE state = 'waiting';
CREATE INDEX live_held ON holdfast.live (id) WHERE state = 'held';
CREATE INDEX live_retried ON holdfast.live (id) WHERE attempts > 0 AND state <> 'running';
-- Jobs that are neither ready nor running.
-- planner: the condition is not state IN (...): with it, a statement about waiting or held jobs by id reads all of them.
CREATE INDEX live_parked ON holdfast.live (queue, state) WHERE substr(state, 1, 1) <> 'r';
-- planner: the condition is not state = 'running'; with it, a settle may choose this index and read all running jobs.
-- lease_expires_at is in it although renewals are therefore not HOT: with 10,000 running jobs the search for an expired
-- lease takes 0.1 ms instead of 4 ms, and every worker searches every 5 s.
CREATE INDEX live_running ON holdfast.live (queue, lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- The outcome of a job. Jobs that succeeded are in ranges of ids: retention drops a range when its jobs have expired
-- (docs/adr/0023-history-by-partition.md). The others are few and stay longer.
CREATE TABLE holdfast.finished (
    id bigint NOT NULL,
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
) PARTITION BY LIST (state);
CREATE INDEX finished_error ON holdfast.finished (id) WHERE error IS NOT NULL;
CREATE TABLE holdfast.finished_unsuccessful PARTITION OF holdfast.finished (PRIMARY KEY (id))
    FOR VALUES IN ('dead', 'cancelled') WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX finished_unsuccessful_time ON holdfast.finished_unsuccessful (state, finished_at, id);
CREATE INDEX finished_unsuccessful_state ON holdfast.finished_unsuccessful (state, id);
CREATE TABLE holdfast.finished_done PARTITION OF holdfast.finished (PRIMARY KEY (id))
    FOR VALUES IN ('done') PARTITION BY RANGE (id);
CREATE INDEX finished_done_time ON holdfast.finished_done (finished_at, id);
-- The oldest range holds what is left of the ranges that were dropped. The last one has no end, so that every id has a
-- place.
CREATE TABLE holdfast.finished_before_10000000 PARTITION OF holdfast.finished_done
    FOR VALUES FROM (MINVALUE) TO (10000000) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE holdfast.finished_from_10000000 PARTITION OF holdfast.finished_done
    FOR VALUES FROM (10000000) TO (MAXVALUE) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Ranges of ids whose outcomes were dropped, and whose requests are deleted in steps. first_id rises with each step.
CREATE TABLE holdfast.expired_range (
    first_id bigint PRIMARY KEY,
    next_id bigint NOT NULL CHECK (next_id > first_id)
);

-- The right to commands. A role that may execute this function may enqueue and change jobs of the built-in kinds, with
-- which a worker runs any program. Nobody else may: INSERT on the tables is not enough.
CREATE FUNCTION holdfast.may_run_commands() RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
REVOKE ALL ON FUNCTION holdfast.may_run_commands() FROM PUBLIC;

-- The search path of these functions is fixed: a caller could put functions and operators of its own before PostgreSQL's.
CREATE FUNCTION holdfast.refuse(action text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'E_READ_ONLY: role "%" may not %', current_user, action
        USING ERRCODE = 'insufficient_privilege', HINT = 'Grant it a role that may: holdfast db roles lists them.';
END $$;
CREATE FUNCTION holdfast.check_command_right() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF has_function_privilege('holdfast.may_run_commands()', 'EXECUTE') THEN
        RETURN NEW;
    END IF;
    PERFORM holdfast.refuse(format('enqueue or change jobs of kind "%s"', NEW.kind));
END $$;
-- AFTER INSERT: the trigger checks the row as it was inserted.
-- Conditions are short: PostgreSQL reads them from their texts at every statement. The backslash keeps the name of the
-- schema from replacing the word before it.
CREATE TRIGGER job_inserted_command AFTER INSERT ON holdfast.job FOR EACH ROW
    WHEN (NEW.kind = ANY ('{command,holdfast\.ping}')) EXECUTE FUNCTION holdfast.check_command_right();
CREATE TRIGGER job_changed_command BEFORE UPDATE OF kind ON holdfast.job FOR EACH ROW
    WHEN (NEW.kind = ANY ('{command,holdfast\.ping}')) EXECUTE FUNCTION holdfast.check_command_right();
-- A retry turns a finished job into a live one of the same kind.
CREATE TRIGGER finished_inserted_command AFTER INSERT ON holdfast.finished FOR EACH ROW
    WHEN (NEW.kind = ANY ('{command,holdfast\.ping}')) EXECUTE FUNCTION holdfast.check_command_right();

-- Without that right a payload changes only as a new enqueue with the same key replaces it.
CREATE FUNCTION holdfast.check_payload_right() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF has_function_privilege('holdfast.may_run_commands()', 'EXECUTE')
        OR OLD.kind <> ALL (ARRAY['command', 'holdfast' || '.ping']) AND OLD.key IS NOT NULL
            AND NOT EXISTS (SELECT FROM holdfast.live WHERE live.id = OLD.id AND live.state = 'running') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'E_READ_ONLY: role "%" may not change the payload of job %', current_user, OLD.id
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER job_payload BEFORE UPDATE OF payload ON holdfast.job FOR EACH ROW
    EXECUTE FUNCTION holdfast.check_payload_right();

CREATE TABLE holdfast.dependency (
    job_id bigint NOT NULL,
    dependency_id bigint NOT NULL,             -- the job that it waits for
    PRIMARY KEY (job_id, dependency_id)
);
CREATE INDEX dependency_dependents ON holdfast.dependency (dependency_id);

-- Jobs whose settlement has effects on others that its transaction left out: each is judged if it waits, and so are the
-- jobs that wait for it (docs/adr/0027-what-a-settlement-does.md). Maintenance takes the rows every second. A job may have
-- several: one that is added while another is taken must not get lost.
CREATE TABLE holdfast.pending_effect (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL
);

-- Unique keys. A key with scope 'forever' outlives its job.
CREATE TABLE holdfast.key (
    kind text NOT NULL,
    key text NOT NULL,
    job_id bigint NOT NULL,
    scope text NOT NULL CHECK (scope IN ('live', 'period', 'forever')),
    expires_at timestamptz,
    previous_id bigint,                        -- had the key before, and may still run: job_id starts after it
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
-- Rows arrive in the order of their time, so page ranges suffice for executions in a time.
CREATE INDEX attempt_finished ON holdfast.attempt USING brin (finished_at);

-- Producers, which have no right to attempts, change only jobs that do not run, as a replacement does. They delete only
-- jobs that wait, as an enqueue does if a dependency has failed. AFTER DELETE: a BEFORE trigger would lock every row. By
-- its id, the table of attempts is found without a search for its name at every row.
CREATE FUNCTION holdfast.refuse_delete() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM holdfast.refuse(format('delete job %s, which is %s', OLD.id, OLD.state));
END $$;
CREATE TRIGGER live_deleted AFTER DELETE ON holdfast.live FOR EACH ROW
    WHEN (OLD.state <> 'waiting' AND NOT has_table_privilege('holdfast.attempt'::regclass, 'DELETE'))
    EXECUTE FUNCTION holdfast.refuse_delete();

-- Rows of live that a producer inserts have their job: a row without one would take a place in its queue for nothing. The
-- job comes first, or in the same statement. One trigger for this rule and the right to commands: each costs every enqueue.
CREATE FUNCTION holdfast.check_new_live() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.kind IN ('command', 'holdfast' || '.ping')
        AND NOT has_function_privilege('holdfast.may_run_commands()', 'EXECUTE') THEN
        PERFORM holdfast.refuse(format('enqueue or change jobs of kind "%s"', NEW.kind));
    ELSIF NOT has_table_privilege('holdfast.attempt', 'DELETE')
        AND NOT EXISTS (SELECT FROM holdfast.job WHERE job.id = NEW.id AND job.kind = NEW.kind) THEN
        PERFORM holdfast.refuse(format('insert job %s, which has no request', NEW.id));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER live_inserted AFTER INSERT ON holdfast.live FOR EACH ROW
    WHEN (NOT has_function_privilege('holdfast.may_run_commands()'::regprocedure, 'EXECUTE'))
    EXECUTE FUNCTION holdfast.check_new_live();

-- The rules for changes of live jobs: the right to commands, that of producers, and the transitions between states, which
-- are those of domain/jobs/job.py. (Finishing and retrying change the table.) One trigger with a short condition, which
-- leaves out the claim, by far the most frequent change: PostgreSQL reads conditions from their texts at every statement.
CREATE FUNCTION holdfast.check_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.kind IN ('command', 'holdfast' || '.ping')
        AND (OLD.kind, OLD.state, OLD.due_at) IS DISTINCT FROM (NEW.kind, NEW.state, NEW.due_at)
        AND NOT has_function_privilege('holdfast.may_run_commands()', 'EXECUTE') THEN
        PERFORM holdfast.refuse(format('enqueue or change jobs of kind "%s"', NEW.kind));
    END IF;
    IF OLD.state = 'running' AND NOT has_table_privilege('holdfast.attempt', 'DELETE') THEN
        PERFORM holdfast.refuse(format('change job %s, which is running', OLD.id));
    END IF;
    IF OLD.state <> NEW.state AND OLD.state || '>' || NEW.state NOT IN (
        'held>waiting', 'held>scheduled', 'held>ready',
        'waiting>scheduled', 'waiting>ready', 'waiting>held',
        'scheduled>ready', 'scheduled>held',
        'ready>running', 'ready>scheduled', 'ready>held',
        'running>ready', 'running>scheduled', 'running>held') THEN
        RAISE EXCEPTION 'job % cannot move from % to %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER live_changed AFTER UPDATE OF kind, state, priority, due_at, token, note, reader ON holdfast.live FOR EACH ROW
    WHEN (OLD.state <> 'ready' OR NEW.state <> 'running' OR NEW.kind = ANY ('{command,holdfast\.ping}'))
    EXECUTE FUNCTION holdfast.check_change();

-- Producers publish new kinds, and leave those that exist as they are: enqueues of others are checked against them. Their
-- publication is no error, because a process may be newer than the workers.
CREATE FUNCTION holdfast.check_publisher() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF has_table_privilege('holdfast.attempt', 'DELETE') THEN
        RETURN NEW;
    ELSIF TG_OP = 'INSERT' THEN
        NEW.provisional := true;
        RETURN NEW;
    END IF;
    OLD.published_at := NEW.published_at;
    RETURN OLD;
END $$;
-- By its name the last one: secrets that a producer declares are kept.
CREATE TRIGGER kind_publisher_checked BEFORE INSERT OR UPDATE ON holdfast.kind FOR EACH ROW
    EXECUTE FUNCTION holdfast.check_publisher();

CREATE TABLE holdfast.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    at timestamptz NOT NULL,
    name text NOT NULL,
    actor text NOT NULL,
    detail json
);
CREATE INDEX event_job ON holdfast.event (job_id, id);

-- The ranges of jobs that are done, oldest first. The first one has no first_id, the last one no next_id.
CREATE FUNCTION holdfast.done_ranges() RETURNS TABLE (leaf regclass, first_id bigint, next_id bigint)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT inhrelid::regclass, substring(bound FROM 'FROM [(]''([0-9]+)''[)]')::bigint,
        substring(bound FROM 'TO [(]''([0-9]+)''[)]')::bigint
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    CROSS JOIN LATERAL pg_get_expr(relpartbound, inhrelid) AS bounds (bound)
    WHERE inhparent = 'holdfast.finished_done'::regclass ORDER BY 2 NULLS FIRST
$$;

-- Lock the finished jobs for a change of their ranges, or raise lock_not_available. Transactions queue behind the request
-- for such a lock. So it is not made while another transaction keeps a lock for longer than ours do, and it waits briefly
-- (lock_timeout of maintain_ranges).
CREATE FUNCTION holdfast.lock_ranges() RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables oid[] := ARRAY['holdfast.finished'::regclass, 'holdfast.finished_done'::regclass];
    holders text[] := ARRAY(SELECT virtualtransaction FROM pg_locks
        WHERE relation = ANY(tables) AND pid IS DISTINCT FROM pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));
BEGIN
    IF holders <> '{}' THEN
        PERFORM pg_sleep(0.1);
        IF EXISTS (SELECT FROM pg_locks WHERE relation = ANY(tables) AND virtualtransaction = ANY(holders)) THEN
            RAISE EXCEPTION 'a transaction keeps a lock on finished jobs' USING ERRCODE = 'lock_not_available';
        END IF;
    END IF;
    LOCK TABLE ONLY holdfast.finished, ONLY holdfast.finished_done IN ACCESS EXCLUSIVE MODE;
END $$;

-- Begin the next range when half of the last but one is used. Its width is an eighth of all ids in ranges, so that
-- their number stays small, but not less than *width*. It begins empty, or nearly: the check of its rows is quick.
CREATE FUNCTION holdfast.begin_range(last bigint, width bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    open record;
    earlier record;
    next bigint;
    crowded boolean;
BEGIN
    SELECT * INTO open FROM holdfast.done_ranges() WHERE next_id IS NULL;
    SELECT * INTO earlier FROM holdfast.done_ranges() WHERE next_id = open.first_id;
    IF last < open.first_id - (open.first_id - coalesce(earlier.first_id, 0)) / 2 THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s ORDER BY id OFFSET 1000000)', open.leaf) INTO crowded;
    IF crowded THEN
        RETURN;  -- its check would block others for seconds; its rows are pruned one by one
    END IF;
    PERFORM holdfast.lock_ranges();
    -- Ids may have been drawn since *last* was read, or the sequence was set back: no row may lie beyond the range.
    EXECUTE format('SELECT greatest($1, max(id)) FROM %s', open.leaf) INTO last USING last;
    next := greatest(last, open.first_id)
        + greatest(width, (open.first_id - (SELECT min(next_id) FROM holdfast.done_ranges())) / 8);
    EXECUTE format('ALTER TABLE holdfast.finished_done DETACH PARTITION %s', open.leaf);
    EXECUTE format('ALTER TABLE holdfast.finished_done ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)',
        open.leaf, open.first_id, next);
    EXECUTE format('CREATE TABLE holdfast.%I PARTITION OF holdfast.finished_done FOR VALUES FROM (%s) TO (MAXVALUE)'
        ' WITH (autovacuum_vacuum_scale_factor = 0.05)', 'finished_from_' || next, next);
END $$;

-- Drop the oldest range but one if no more ids of it are given out and its jobs have expired, all but *most* and but a tenth
-- of its ids. The others, and dependencies of live jobs, move to the oldest range, which then ends where this one did.
CREATE FUNCTION holdfast.drop_expired_range(last bigint, age interval, most bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    oldest record;
    expired record;
    cutoff timestamptz := holdfast.now() - age;
    crowded boolean;
    kept text;
BEGIN
    SELECT * INTO oldest FROM holdfast.done_ranges() WHERE first_id IS NULL;
    SELECT * INTO expired FROM holdfast.done_ranges() WHERE first_id = oldest.next_id AND next_id <= last;
    IF expired.leaf IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE finished_at >= $1 ORDER BY finished_at OFFSET $2)'
        ' OR EXISTS (SELECT FROM %s ORDER BY id OFFSET $3)', expired.leaf, oldest.leaf)
        INTO crowded USING cutoff, least(most, (expired.next_id - expired.first_id) / 10), most;
    IF crowded OR EXISTS (
        SELECT FROM holdfast.dependency WHERE dependency_id >= expired.first_id AND dependency_id < expired.next_id
        ORDER BY dependency_id OFFSET 5 * most)
    THEN
        RETURN;
    END IF;
    PERFORM holdfast.lock_ranges();
    -- From here on, each statement sees all that was committed: no other transaction uses these tables.
    EXECUTE format('ALTER TABLE holdfast.finished_done DETACH PARTITION %s', oldest.leaf);
    EXECUTE format('ALTER TABLE holdfast.finished_done DETACH PARTITION %s', expired.leaf);
    kept := format('holdfast.%I', 'finished_before_' || expired.next_id);
    EXECUTE format('CREATE TABLE %s PARTITION OF holdfast.finished_done FOR VALUES FROM (MINVALUE) TO (%s)'
        ' WITH (autovacuum_vacuum_scale_factor = 0.05)', kept, expired.next_id);
    EXECUTE format('INSERT INTO %s SELECT * FROM %s ORDER BY id', kept, oldest.leaf);
    EXECUTE format('INSERT INTO %s SELECT * FROM %s WHERE finished_at >= $1', kept, expired.leaf) USING cutoff;
    EXECUTE format('INSERT INTO %s SELECT * FROM %s WHERE finished_at < $1 AND id = ANY(ARRAY('
        'SELECT dependency_id FROM holdfast.dependency WHERE dependency_id >= $2 AND dependency_id < $3'
        ' AND (SELECT true FROM holdfast.live WHERE live.id = dependency.job_id)))', kept, expired.leaf)
        USING cutoff, expired.first_id, expired.next_id;
    EXECUTE format('DROP TABLE %s, %s', oldest.leaf, expired.leaf);
    INSERT INTO holdfast.expired_range VALUES (expired.first_id, expired.next_id);
END $$;

-- Begin and drop ranges as far as they are due; *age* is that of jobs that are done, or NULL. Returns the closed ranges,
-- which retention waits to drop: from first_id to next_id, without it. It runs with the rights of the owner, because a
-- worker does not own the tables. A second call at the same time only reads. What is locked is left for the next call.
CREATE FUNCTION holdfast.maintain_ranges(age interval, width bigint, most bigint)
    RETURNS TABLE (first_id bigint, next_id bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    last bigint := (SELECT last_value FROM holdfast.job_id);
BEGIN
    -- An older snapshot would not see all rows that have to be kept.
    IF current_setting('transaction_isolation') = 'read committed'
        AND pg_try_advisory_xact_lock(hashtextextended('holdfast.finished', 0))
    THEN
        BEGIN
            PERFORM holdfast.begin_range(last, width);
            IF age IS NOT NULL THEN
                PERFORM holdfast.drop_expired_range(last, age, most);
            END IF;
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR dependent_objects_still_exist THEN
            NULL;  -- of the last: a view that a user has made
        END;
    END IF;
    RETURN QUERY SELECT min(each.next_id), max(each.next_id) FILTER (WHERE each.next_id <= last)
        FROM holdfast.done_ranges() AS each;
END $$;
REVOKE ALL ON FUNCTION holdfast.maintain_ranges(interval, bigint, bigint) FROM PUBLIC;

-- Delete the next *most* requests of a dropped range, except those of jobs that are live or finished, and all other rows
-- of their jobs. Keys that are still taken stay. Ranges of ids are read in their order, which takes a tenth of the time of
-- a lookup for each job in each table. Returns the ids.
CREATE FUNCTION holdfast.delete_expired_requests(most integer) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    last bigint;
    after bigint;
BEGIN
    SELECT first_id, next_id INTO first, after FROM holdfast.expired_range
    ORDER BY first_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF first IS NULL THEN
        RETURN;
    END IF;
    last := coalesce((SELECT id FROM holdfast.job WHERE id >= first AND id < after
        ORDER BY id OFFSET most - 1 LIMIT 1), after - 1);
    -- Another transaction enqueues a job with the same key: the next step waits for its end, and this one does not.
    last := coalesce((SELECT job_id - 1 FROM holdfast.key WHERE job_id BETWEEN first AND last AND ctid <> ALL (ARRAY(
        SELECT ctid FROM holdfast.key WHERE job_id BETWEEN first AND last FOR UPDATE SKIP LOCKED))
        ORDER BY job_id LIMIT 1), last);
    -- One statement: in its snapshot, a job that is being enqueued, settled or retried is live or finished, or not there.
    RETURN QUERY WITH kept AS (
        SELECT ARRAY(SELECT id FROM holdfast.live WHERE id BETWEEN first AND last
            UNION ALL SELECT id FROM holdfast.finished WHERE id BETWEEN first AND last) AS ids
    ), deleted_attempts AS (
        DELETE FROM holdfast.attempt WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_events AS (
        DELETE FROM holdfast.event WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_steps AS (
        DELETE FROM holdfast.step WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_traces AS (
        DELETE FROM holdfast.trace WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_progress AS (
        DELETE FROM holdfast.progress WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_dependencies AS (
        DELETE FROM holdfast.dependency WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
    ), deleted_keys AS (
        DELETE FROM holdfast.key WHERE job_id BETWEEN first AND last AND job_id <> ALL ((SELECT ids FROM kept)::bigint[])
            AND (scope = 'live' OR scope = 'period' AND expires_at <= (SELECT holdfast.now()))
            AND (SELECT count(*) FROM holdfast.live WHERE live.id = previous_id) = 0
    )
    DELETE FROM holdfast.job
    WHERE id BETWEEN first AND last AND id <> ALL ((SELECT ids FROM kept)::bigint[]) RETURNING id;
    UPDATE holdfast.expired_range SET first_id = last + 1 WHERE first_id = first AND next_id > last + 1;
    DELETE FROM holdfast.expired_range WHERE first_id = first AND next_id <= last + 1;
END $$;

-- The progress of a running handler, and its checkpoint for the next attempt.
CREATE TABLE holdfast.progress (
    job_id bigint PRIMARY KEY,
    done bigint,
    total bigint,
    message text,
    checkpoint json,
    at timestamptz NOT NULL,
    token bigint,                              -- of the run that reported done
    base bigint                                -- done when that run began
) WITH (fillfactor = 70);

-- Steps of a handler that are finished for good or asleep, across attempts.
CREATE TABLE holdfast.step (
    job_id bigint NOT NULL,
    name text NOT NULL,
    result json,
    until timestamptz,
    PRIMARY KEY (job_id, name)
);

-- The W3C trace context of the enqueue.
CREATE TABLE holdfast.trace (
    job_id bigint PRIMARY KEY,
    context text NOT NULL
);

-- All columns of a job, while it is live and after it has finished. Lists read a page of each view.
-- planner: both have plain types, not domains; where the types of a union differ, a page of few jobs reads all live ones.
CREATE VIEW holdfast.live_view AS
    SELECT live.id, live.kind, live.queue, live.state::text, live.priority, live.due_at::timestamptz, job.label, job.tags::text,
        job.key, job.payload::text, job.parent_id, job.actor, job.created_at, live.attempts::integer, job.max_attempts,
        live.crashes, job.max_crashes, job.on_lost::text, job.retry::text, job.after_when::text,
        job.after_failed::text, live.token,
        live.losses::smallint, live.requested::text, live.worker, live.claimed_at, live.started_at, live.lease_expires_at,
        live.note, NULL::timestamptz AS finished_at, NULL::text AS reason,
        -- The error of the last failed attempt, until the next attempt begins.
        CASE WHEN live.attempts > 0 AND live.state <> 'running' THEN (
            SELECT attempt.error FROM holdfast.attempt WHERE attempt.job_id = live.id AND attempt.error IS NOT NULL
            ORDER BY attempt.token DESC LIMIT 1) END AS error, NULL::text AS result,
        progress.done AS progress_done, progress.total AS progress_total, progress.message AS progress_message,
        progress.checkpoint::text, live.kind_version, live.reader, live.refusals::text,
        CASE WHEN progress.token = live.token THEN progress.base ELSE progress.done END AS progress_base,
        job.timeout::double precision, false AS is_finished, live.attempts > 0 AND live.state <> 'running' AS may_have_error
    FROM holdfast.live LEFT JOIN holdfast.job ON job.id = live.id
    LEFT JOIN holdfast.progress ON progress.job_id = live.id;
CREATE VIEW holdfast.finished_view AS
    SELECT finished.id, finished.kind, finished.queue, finished.state, finished.priority, finished.due_at, job.label,
        job.tags::text, job.key, job.payload::text, job.parent_id, job.actor, job.created_at, finished.attempts,
        job.max_attempts, finished.crashes, job.max_crashes, job.on_lost::text, job.retry::text, job.after_when::text,
        job.after_failed::text, finished.token, 0::smallint AS losses, NULL::text AS requested, finished.worker,
        NULL::timestamptz AS claimed_at, finished.started_at, NULL::timestamptz AS lease_expires_at, NULL::text AS note,
        finished.finished_at, finished.reason, finished.error, finished.result::text, progress.done AS progress_done,
        progress.total AS progress_total, progress.message AS progress_message, progress.checkpoint::text,
        job.kind_version, '' AS reader, NULL::text AS refusals, progress.base AS progress_base,
        job.timeout::double precision, true AS is_finished, finished.error IS NOT NULL AS may_have_error
    FROM holdfast.finished LEFT JOIN holdfast.job ON job.id = finished.id
    LEFT JOIN holdfast.progress ON progress.job_id = finished.id;

-- A job of this login with its payload and result, for producers, who may read neither in the tables. With the rights of the
-- owner. SET ROLE does not change session_user.
CREATE FUNCTION holdfast.own_job(job bigint) RETURNS SETOF holdfast.finished_view LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM (SELECT * FROM holdfast.live_view UNION ALL SELECT * FROM holdfast.finished_view) AS listed
    WHERE listed.id = job AND EXISTS (SELECT FROM holdfast.job AS own WHERE own.id = job AND own.db_user = session_user)
$$;
REVOKE ALL ON FUNCTION holdfast.own_job(bigint) FROM PUBLIC;

-- A claim may wait for a lock while another transaction changes the payload. Its own snapshot would return the old one;
-- a volatile function sees the rows that are committed when it is called.
CREATE FUNCTION holdfast.payload_of(job bigint) RETURNS text LANGUAGE sql VOLATILE
    AS 'SELECT payload::text FROM holdfast.job WHERE id = $1';
CREATE FUNCTION holdfast.checkpoint_of(job bigint) RETURNS text LANGUAGE sql VOLATILE
    AS 'SELECT checkpoint::text FROM holdfast.progress WHERE job_id = $1';

-- JSON in one spelling: sorted names, no spaces, numbers as plain decimals (5 for 5.0). Unique keys are made of it, here
-- and in domain/jobs/new_job.py; equal values give equal keys.
CREATE FUNCTION holdfast.canonical_json(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET extra_float_digits = 1 AS $$
DECLARE
    number text := value #>> '{}';
BEGIN
    CASE jsonb_typeof(value)
    WHEN 'object' THEN
        RETURN (SELECT '{' || coalesce(string_agg(to_json(entry.key)::text || ':'
            || holdfast.canonical_json(entry.value), ',' ORDER BY entry.key COLLATE "C"), '') || '}'
            FROM jsonb_each(value) AS entry);
    WHEN 'array' THEN
        RETURN (SELECT '[' || coalesce(string_agg(holdfast.canonical_json(item.value), ',' ORDER BY ordinal), '') || ']'
            FROM jsonb_array_elements(value) WITH ORDINALITY AS item (value, ordinal));
    WHEN 'number' THEN
        -- A number with a fraction has the digits of a float, as in Python.
        RETURN CASE WHEN number ~ '^-?[0-9]+$' THEN number ELSE trim_scale(number::float8::text::numeric)::text END;
    ELSE
        RETURN value::text;
    END CASE;
END $$;

-- The key of a kind that declares its unique fields. A long key ends in its digest.
CREATE FUNCTION holdfast.unique_key(kind text, fields json, payload jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    key text;
BEGIN
    SELECT '[' || string_agg(holdfast.canonical_json(payload->field), ',' ORDER BY ordinal) || ']' INTO key
    FROM json_array_elements_text(fields) WITH ORDINALITY AS named (field, ordinal)
    HAVING count(payload->field) = count(*);
    IF key IS NULL THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: the unique key of kind "%" needs the fields %', kind, fields
            USING HINT = 'Name them in the payload, also those that have a default.';
    END IF;
    RETURN CASE WHEN length(key) <= 512 THEN key
        ELSE left(key, 512 - 64) || encode(sha256(convert_to(key, 'UTF8')), 'hex') END;
END $$;

-- Refuses a name that Python would refuse. No name at all is allowed. What is a space must not depend on the locale.
CREATE FUNCTION holdfast.check_name(name text, label text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    spaces text := E'\\x09-\\x0d\\x1c-\\x20\\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
BEGIN
    IF name = '' OR name ~ ('^[' || spaces || ']|[' || spaces || ']$') THEN
        RAISE EXCEPTION 'E_INVALID: the % cannot be empty or begin or end with a space: "%"', label, name;
    ELSIF length(name) > 200 THEN
        RAISE EXCEPTION 'E_INVALID: the % is longer than 200 characters: "%"', label, left(name, 40);
    END IF;
END $$;

-- Refuses a payload that Python would refuse. A deep payload has many brackets; only those with many are walked through.
CREATE FUNCTION holdfast.check_payload(payload json) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    size integer := octet_length(payload::text);
    value jsonb;
BEGIN
    IF size > 262144 THEN
        RAISE EXCEPTION 'E_PAYLOAD_TOO_LARGE: the payload takes % bytes; at most 262,144 are allowed', size
            USING HINT = 'Keep the data elsewhere and enqueue its name.';
    END IF;
    IF json_typeof(payload) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: a payload is a JSON object'
            USING HINT = 'Name the handler''s parameters: {"name": value}.';
    END IF;
    value := payload;
    PERFORM holdfast.check_floats(payload);
    IF size - length(translate(payload::text, '{[', '')) > 100 AND EXISTS (
        WITH RECURSIVE nested (value, depth) AS (
            SELECT value, 1
            UNION ALL
            SELECT inner_value, nested.depth + 1 FROM nested CROSS JOIN LATERAL (
                SELECT entry.value FROM jsonb_each(
                    CASE jsonb_typeof(nested.value) WHEN 'object' THEN nested.value ELSE '{}' END) AS entry
                UNION ALL
                SELECT item.value FROM jsonb_array_elements(
                    CASE jsonb_typeof(nested.value) WHEN 'array' THEN nested.value ELSE '[]' END) AS item
                ) AS deeper (inner_value)
            WHERE nested.depth <= 101
        )
        SELECT FROM nested WHERE nested.depth > 100 AND jsonb_typeof(nested.value) IN ('object', 'array'))
    THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: the payload is nested more than 100 levels deep'
            USING HINT = 'Make it flatter, or keep it in a file and name the file.';
    END IF;
    RETURN value;
END $$;

-- When a job is due. Python allows the same range.
CREATE FUNCTION holdfast.checked_due_time(now timestamptz, delay interval, run_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF delay IS NOT NULL AND run_at IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: a delay and a run_at cannot be combined';
    ELSIF delay < interval '0' OR delay > interval '36525 days' THEN
        RAISE EXCEPTION 'E_INVALID: a delay is between 0 and 36525 days, not %', delay;
    ELSIF run_at < '1900-01-01 00:00+00' OR run_at >= '9000-01-01 00:00+00' THEN
        RAISE EXCEPTION 'E_INVALID: run_at is too far away: %', run_at USING HINT = 'Use the years 1900 to 8999.';
    END IF;
    RETURN coalesce(run_at, now + delay, now);
END $$;

-- Raise a serialization failure if one of these jobs was deleted after the snapshot of this transaction was taken. Under
-- REPEATABLE READ and SERIALIZABLE such a job still looks live. Only a row lock tells; the locks end with the inner
-- block, so that nobody waits for the caller's transaction.
CREATE FUNCTION holdfast.refuse_old_snapshot(jobs bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        BEGIN
            PERFORM FROM holdfast.live WHERE id = ANY(jobs) FOR KEY SHARE SKIP LOCKED;
            RAISE EXCEPTION 'end the locks' USING ERRCODE = 'HF000';
        EXCEPTION WHEN SQLSTATE 'HF000' THEN
            RETURN true;
        END;
    END IF;
    RETURN true;
END $$;

-- ---- enqueue from SQL ---------------------------------------------------------------------------------------------

-- A job that SQL enqueues: its checked request, and what became of it.
CREATE TYPE holdfast.new_job AS (
    id bigint,
    outcome text,
    kind text,
    kind_version integer,
    payload json,
    queue text,
    priority integer,
    due_at timestamptz,
    label text,
    tags json,
    key text,
    scope text,                                -- how long the key stays taken
    period interval,
    on_conflict text,
    after_ids bigint[],
    after_keys json,                           -- pairs of kind and key
    after_labels text[],
    after_when text,
    after_failed text,
    hold boolean,
    max_attempts integer,
    max_crashes integer,
    on_lost text,
    retry json,
    timeout double precision,
    actor text
);

-- The JSON of a request or of several. The caller may have text, json or jsonb.
CREATE FUNCTION holdfast.parse_request(request text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    value json;
BEGIN
    BEGIN
        value := request;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: the request is not JSON: %', SQLERRM
            USING HINT = 'It is like {"kind": "mail", "payload": {"to": 7}}.';
    END;
    BEGIN
        PERFORM request::jsonb;
    EXCEPTION WHEN data_exception THEN
        RAISE EXCEPTION 'E_INVALID_TEXT: the request cannot be stored: %', SQLERRM
            USING HINT = 'Remove NUL characters, lone surrogates and numbers out of range.';
    END;
    RETURN value;
END $$;

-- Refuse values that are no objects, and fields that a request does not have.
CREATE FUNCTION holdfast.check_fields(request json, label text, VARIADIC known text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    unknown text;
BEGIN
    IF json_typeof(request) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'E_INVALID: % is a JSON object', label USING HINT = 'It has: ' || array_to_string(known, ', ') || '.';
    END IF;
    SELECT min(name) INTO unknown FROM json_object_keys(request) AS name WHERE name <> ALL (known);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: % has no field "%"', label, left(unknown, 40)
            USING HINT = 'It has: ' || array_to_string(known, ', ') || '.';
    END IF;
END $$;

-- The value of a field; NULL if it is missing, or null where null is one of its types.
CREATE FUNCTION holdfast.field(request json, name text, VARIADIC types text[]) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    type text := json_typeof(request->name);
BEGIN
    IF type IS NULL OR type = 'null' AND 'null' = ANY (types) THEN
        RETURN NULL;
    ELSIF type <> ALL (types) THEN
        RAISE EXCEPTION 'E_INVALID: "%" is of type %, not %', name, array_to_string(types, ' or '), type;
    END IF;
    RETURN request->name;
END $$;

-- A field that is a whole number of 32 bits, from *minimum*.
CREATE FUNCTION holdfast.number_field(request json, name text, minimum integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    number text := holdfast.field(request, name, 'number', 'null') #>> '{}';
BEGIN
    IF number !~ '^-?[0-9]+$' OR number::numeric NOT BETWEEN minimum AND 2147483647 THEN
        RAISE EXCEPTION 'E_INVALID: "%" is a whole number from % to 2147483647, not %', name, minimum, left(number, 40);
    END IF;
    RETURN number;
END $$;

-- A field that is a name.
CREATE FUNCTION holdfast.name_field(request json, name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    text text := holdfast.field(request, name, 'string', 'null') #>> '{}';
BEGIN
    PERFORM holdfast.check_name(text, name);
    RETURN text;
END $$;

-- Check a list: the types of its entries as a pattern, and how many it has.
CREATE FUNCTION holdfast.check_list(list json, label text, types text, most integer) RETURNS json
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF json_array_length(list) > most THEN
        RAISE EXCEPTION 'E_INVALID: "%" has at most % entries', label, most;
    ELSIF EXISTS (SELECT FROM json_array_elements(list) AS each (entry) WHERE json_typeof(entry) !~ types) THEN
        RAISE EXCEPTION 'E_INVALID: an entry of "%" is not a %', label, replace(types, '|', ' or a ');
    END IF;
    RETURN list;
END $$;

-- A duration in seconds: a number of them, or a text such as 90s, 1h30m or 500ms. Python reads the same (quantities.py).
CREATE FUNCTION holdfast.seconds_of(duration json) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    words text := lower(btrim(duration #>> '{}'));
    seconds numeric;
BEGIN
    IF json_typeof(duration) = 'number' THEN
        seconds := words;
    ELSIF words ~ '^[0-9]+([.][0-9]+)?$' THEN
        seconds := words;
    ELSIF words ~ '^([0-9]+([.][0-9]+)?(ms|s|m|h|d|w))+$' THEN
        SELECT sum(part[1]::numeric * CASE part[3] WHEN 'ms' THEN 0.001 WHEN 's' THEN 1 WHEN 'm' THEN 60 WHEN 'h' THEN 3600
            WHEN 'd' THEN 86400 WHEN 'w' THEN 604800 END) INTO seconds
        FROM regexp_matches(words, '([0-9]+([.][0-9]+)?)(ms|s|m|h|d|w)', 'g') AS matched (part);
    ELSIF duration IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: not a duration: "%"', left(words, 40)
            USING HINT = 'Write it like 90, 1.5h, 1h30m or 500ms.';
    END IF;
    IF seconds NOT BETWEEN 0 AND 36525 * 86400::numeric THEN
        RAISE EXCEPTION 'E_INVALID: a duration is between 0 and 36525 days, not %', left(words, 40);
    END IF;
    RETURN round(seconds, 6);
END $$;

-- A timestamp of RFC 3339 with its time zone.
CREATE FUNCTION holdfast.time_of(words text) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF words !~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?'
        || '([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])$') THEN
        RAISE EXCEPTION 'E_INVALID: "run_at" is not a timestamp with a time zone (RFC 3339): "%"', left(words, 40)
            USING HINT = 'Write it like 2030-01-31T12:00:00Z.';
    END IF;
    RETURN words::timestamptz;
EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'E_INVALID: "run_at" is not a timestamp: "%"', left(words, 40);
END $$;

-- JSON without spaces between its values, as Python writes it. Strings match as a whole, so that they keep theirs.
CREATE FUNCTION holdfast.compact_json(value json) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value::text ~ '[[:space:]]'
        THEN regexp_replace(value::text, $re$("([^"\\]|\\.)*")|[[:space:]]+$re$, $re$\1$re$, 'g')::json ELSE value END
$$;

-- Refuse numbers that no float can hold. Whole numbers have any size.
CREATE FUNCTION holdfast.check_floats(payload json) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF payload::text ~ '[0-9]{250}|[eE][+]?[0-9]{2}' AND EXISTS (
        SELECT FROM regexp_matches(regexp_replace(payload::text, $re$"([^"\\]|\\.)*"$re$, '', 'g'), '([0-9][0-9.eE+-]*)', 'g')
            AS matched (number)
        WHERE number[1] ~ '[.eE]' AND number[1]::numeric > 1.7976931348623157e308)
    THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: a number of the payload is out of range';
    END IF;
END $$;

-- Whether a value has a type of JSON Schema. A decimal may also be a number.
CREATE FUNCTION holdfast.has_type(value json, type text, format text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE json_typeof(value) WHEN 'number' THEN type = 'number' OR type = 'string' AND coalesce(format, '') = 'decimal'
        OR type = 'integer' AND value #>> '{}' ~ '^-?[0-9]+$' ELSE json_typeof(value) = type END
$$;

-- How a value differs from a schema, with the path to the part that does; NULL: it fits. Types alone are named: a value may
-- be a secret. The checks are those of domain/jobs/payload_schema.py. A name that an object has twice must fit twice: the
-- worker reads both.
CREATE FUNCTION holdfast.find_mismatch(value json, schema jsonb, definitions jsonb, path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    options jsonb;
    mismatches text[];
BEGIN
    WHILE schema ? '$ref' LOOP
        schema := coalesce(definitions->regexp_replace(schema->>'$ref', '^.*/', ''), '{}');
    END LOOP;
    options := coalesce(schema->'anyOf', schema->'oneOf');
    IF options IS NOT NULL THEN
        SELECT array_agg(holdfast.find_mismatch(value, option, definitions, path)) INTO mismatches
        FROM jsonb_array_elements(options) AS options (option);
        RETURN CASE WHEN array_position(mismatches, NULL) IS NOT NULL THEN NULL WHEN cardinality(mismatches) = 1
            THEN mismatches[1] ELSE holdfast.wrong_type(path, value, options) END;
    ELSIF schema ? 'enum' THEN
        RETURN CASE WHEN value::jsonb <> ALL (SELECT * FROM jsonb_array_elements(schema->'enum'))
            THEN format('%s is not one of %s', path, (SELECT string_agg(each::text, ', ')
                FROM jsonb_path_query(schema->'enum', '$[0 to 9]') AS each)) END;
    ELSIF schema ? 'type' AND NOT (SELECT bool_or(holdfast.has_type(value, type, schema->>'format')) FROM
        jsonb_array_elements_text(CASE jsonb_typeof(schema->'type') WHEN 'array' THEN schema->'type'
            ELSE jsonb_build_array(schema->'type') END) AS types (type)) THEN
        RETURN holdfast.wrong_type(path, value, jsonb_build_array(schema));
    END IF;
    RETURN CASE json_typeof(value) WHEN 'object' THEN holdfast.find_in_object(value, schema, definitions, path)
        WHEN 'array' THEN holdfast.find_in_array(value, schema, definitions, path) END;
END $$;
CREATE FUNCTION holdfast.find_in_object(value json, schema jsonb, definitions jsonb, path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    name text;
    item json;
    expected jsonb;
    mismatch text;
BEGIN
    FOR name IN SELECT * FROM jsonb_array_elements_text(coalesce(schema->'required', '[]')) LOOP
        IF value->name IS NULL THEN
            RETURN format('%s lacks ''%s''', path, name);
        END IF;
    END LOOP;
    FOR name, item IN SELECT * FROM json_each(value) LOOP
        expected := coalesce(schema->'properties'->name, schema->'additionalProperties', 'true');
        IF expected = 'false' THEN
            RETURN format('%s has no ''%s''', path, name);
        ELSIF jsonb_typeof(expected) = 'object' THEN
            mismatch := holdfast.find_mismatch(item, expected, definitions, path || '.' || name);
            IF mismatch IS NOT NULL THEN
                RETURN mismatch;
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE FUNCTION holdfast.find_in_array(value json, schema jsonb, definitions jsonb, path text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    first integer := coalesce(jsonb_array_length(schema->'prefixItems'), 0);
    item json;
    place integer := 0;
    expected jsonb;
    mismatch text;
BEGIN
    IF schema->'items' = 'false' AND json_array_length(value) > first THEN
        RETURN format('%s has %s elements, not %s', path, first, json_array_length(value));
    ELSIF first = 0 AND schema->'items'->>'type' IN ('boolean', 'integer', 'number') THEN
        -- planner: one statement for all; the loop takes 3 s for 100,000 numbers.
        SELECT each.item, each.place INTO item, place FROM json_array_elements(value) WITH ORDINALITY AS each (item, place)
        WHERE NOT holdfast.has_type(each.item, schema->'items'->>'type', NULL) ORDER BY each.place LIMIT 1;
        RETURN holdfast.wrong_type(format('%s[%s]', path, place - 1), item, jsonb_build_array(schema->'items'));
    END IF;
    FOR item IN SELECT * FROM json_array_elements(value) LOOP
        expected := coalesce(schema->'prefixItems'->place, schema->'items');
        IF jsonb_typeof(expected) = 'object' THEN
            mismatch := holdfast.find_mismatch(item, expected, definitions, format('%s[%s]', path, place));
            IF mismatch IS NOT NULL THEN
                RETURN mismatch;
            END IF;
        END IF;
        place := place + 1;
    END LOOP;
    RETURN NULL;
END $$;
CREATE FUNCTION holdfast.wrong_type(path text, value json, options jsonb) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT format('%s is of type %s, not %s', path, (
            SELECT string_agg(type, ' or ' ORDER BY place) FROM (
                SELECT coalesce(option->>'type', 'object') AS type, min(place) AS place
                FROM jsonb_array_elements(options) WITH ORDINALITY AS options (option, place) GROUP BY 1) AS types),
        CASE WHEN holdfast.has_type(value, 'integer', NULL) THEN 'integer' ELSE json_typeof(value) END)
$$;

-- Refuse unknown and missing parameters, and values of other types, by the published schema of the kind.
CREATE FUNCTION holdfast.check_parameters(published holdfast.kind, payload json) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    schema jsonb := published.payload_schema;
    definitions jsonb := coalesce(schema->'$defs', '{}');
    parameters jsonb := coalesce(definitions->'Payload', schema);
    known jsonb := coalesce(parameters->'properties', '{}');
    wrong text;
BEGIN
    SELECT min(name) INTO wrong FROM json_object_keys(payload) AS name WHERE NOT known ? name;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: ''%'' has no parameter ''%''', published.name, wrong USING HINT = coalesce(
            format('It takes: %s.', (SELECT string_agg(name, ', ' ORDER BY name) FROM jsonb_object_keys(known) AS name)),
            'It takes no parameters.');
    END IF;
    SELECT min(name) INTO wrong FROM jsonb_array_elements_text(coalesce(parameters->'required', '[]')) AS name
    WHERE payload->name IS NULL;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: ''%'' needs the parameter ''%''', published.name, wrong;
    END IF;
    SELECT mismatch INTO wrong FROM json_each(payload) AS parameter, LATERAL holdfast.find_mismatch(
        parameter.value, known->parameter.key, definitions, parameter.key) AS mismatch WHERE mismatch IS NOT NULL LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID_PAYLOAD: the payload of ''%'' does not fit: %', published.name, wrong;
    END IF;
END $$;

-- The kind of a request, if SQL may enqueue jobs of it.
CREATE FUNCTION holdfast.published_kind(request json) RETURNS holdfast.kind LANGUAGE plpgsql STABLE AS $$
DECLARE
    kind_name text := holdfast.field(request, 'kind', 'string') #>> '{}';
    published holdfast.kind;
BEGIN
    IF kind_name IS NULL THEN
        RAISE EXCEPTION 'E_INVALID: a request needs a "kind"';
    END IF;
    SELECT * INTO published FROM holdfast.kind WHERE kind.name = kind_name;
    IF kind_name LIKE 'holdfast' || '.%' OR published.options->'unit' IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: "%" is not a kind that people enqueue', kind_name USING HINT = 'Start a batch instead.';
    ELSIF published.name IS NULL THEN
        RAISE EXCEPTION 'E_UNKNOWN_KIND: no application has registered kind "%"', kind_name
            USING HINT = 'See SELECT name FROM holdfast.kind, or start a worker of the application that has it.';
    ELSIF kind_name = 'command' AND EXISTS (SELECT FROM holdfast.command_switch) THEN
        RAISE EXCEPTION 'E_CONFLICT: commands are switched off on this store, so nothing was enqueued'
            USING HINT = 'An admin of the store allows them again: holdfast db commands on.';
    END IF;
    RETURN published;
END $$;

-- The tags of a request, as Python writes them.
CREATE FUNCTION holdfast.read_tags(request json) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    tags text[] := ARRAY(SELECT json_array_elements_text(
        holdfast.check_list(holdfast.field(request, 'tags', 'array'), 'tags', 'string', 100)));
BEGIN
    PERFORM holdfast.check_name(tag, 'tag') FROM unnest(tags) AS tag;
    RETURN CASE WHEN tags <> '{}' THEN to_json(tags) END;
END $$;

-- The delays between attempts: those of the request, or of the kind; NULL: the usual ones.
CREATE FUNCTION holdfast.read_retry(request json, options json) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    delays json := holdfast.check_list(holdfast.field(request, 'retry', 'array', 'null'), 'retry', 'string|number', 100);
BEGIN
    IF delays IS NULL THEN
        RETURN CASE WHEN json_typeof(options->'retry') = 'object' THEN options->'retry' END;
    ELSIF json_array_length(delays) = 0 THEN
        RAISE EXCEPTION 'E_INVALID: a list of retry delays needs at least one entry';
    END IF;
    RETURN json_build_object('jitter', 0, 'steps', (
        SELECT json_agg(holdfast.seconds_of(delay)) FROM json_array_elements(delays) AS delays (delay)));
END $$;

-- The jobs that a new one starts after: a list of ids, or an object with ids, keys, labels, when and if_not.
CREATE FUNCTION holdfast.read_after(job holdfast.new_job, request json) RETURNS holdfast.new_job LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    after json := holdfast.field(request, 'after', 'array', 'object', 'null');
BEGIN
    IF after IS NULL THEN
        RETURN job;
    ELSIF json_typeof(after) = 'array' THEN
        after := json_build_object('ids', holdfast.check_list(after, 'after', 'number', 1000));
    END IF;
    PERFORM holdfast.check_fields(after, '"after"', 'ids', 'keys', 'labels', 'when', 'if_not');
    job.after_keys := holdfast.check_list(holdfast.field(after, 'keys', 'array'), 'keys', 'array', 1000);
    job.after_labels := ARRAY(SELECT json_array_elements_text(
        holdfast.check_list(holdfast.field(after, 'labels', 'array'), 'labels', 'string', 1000)));
    job.after_when := coalesce(holdfast.field(after, 'when', 'string') #>> '{}', 'done');
    job.after_failed := coalesce(holdfast.field(after, 'if_not', 'string') #>> '{}', 'cancel');
    IF job.after_when <> ALL ('{done,finished,failed}') OR job.after_failed <> ALL ('{cancel,hold}') THEN
        RAISE EXCEPTION 'E_INVALID: "when" is done, finished or failed, and "if_not" is cancel or hold';
    ELSIF EXISTS (SELECT FROM json_array_elements(job.after_keys) AS pair WHERE json_array_length(pair) <> 2
            OR json_typeof(pair->0) <> 'string' OR json_typeof(pair->1) <> 'string') THEN
        RAISE EXCEPTION 'E_INVALID: "keys" are pairs of kind and key';
    ELSIF EXISTS (SELECT FROM json_array_elements_text(
            holdfast.check_list(holdfast.field(after, 'ids', 'array'), 'ids', 'number', 1000)) AS number
            WHERE number !~ '^[0-9]{1,19}$' OR number::numeric > 9223372036854775807) THEN
        RAISE EXCEPTION 'E_INVALID: an entry of "after" is not an id of a job';
    END IF;
    job.after_ids := ARRAY(SELECT DISTINCT number::bigint FROM json_array_elements_text(after->'ids') AS number);
    IF job.after_ids = '{}' AND job.after_labels = '{}' AND coalesce(json_array_length(job.after_keys), 0) = 0 THEN
        RAISE EXCEPTION 'E_INVALID: after names no job' USING HINT = 'Leave it out when there is nothing to wait for.';
    END IF;
    RETURN job;
END $$;

-- The unique key of a new job, its own or that of its kind, and what happens if it is taken.
CREATE FUNCTION holdfast.read_key(job holdfast.new_job, request json, options json) RETURNS holdfast.new_job
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    key_for json := holdfast.field(request, 'key_for', 'string', 'number', 'null');
BEGIN
    job.on_conflict := coalesce(holdfast.field(request, 'on_conflict', 'string') #>> '{}', 'skip');
    job.key := holdfast.field(request, 'key', 'string', 'null') #>> '{}';
    IF job.key IS NULL AND json_array_length(options->'unique') > 0 THEN
        job.key := holdfast.unique_key(job.kind, options->'unique', job.payload::jsonb);
    END IF;
    job.scope := CASE WHEN key_for IS NULL THEN options->>'unique_scope' WHEN key_for #>> '{}' = 'ever' THEN 'forever'
        ELSE 'period' END;
    job.period := make_interval(secs => CASE WHEN key_for IS NULL THEN (options->>'unique_seconds')::float
        WHEN job.scope = 'period' THEN holdfast.seconds_of(key_for) END);
    IF job.on_conflict <> ALL ('{skip,replace,rerun,raise}') THEN
        RAISE EXCEPTION 'E_INVALID: on_conflict is skip, replace, rerun or raise, not "%"', left(job.on_conflict, 40);
    ELSIF job.key IS NULL AND key_for IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: key_for needs a key';
    ELSIF job.key = '' OR length(job.key) > 512 THEN
        RAISE EXCEPTION 'E_INVALID: a key has 1 to 512 characters, this one has %', length(job.key);
    ELSIF octet_length(job.key) + octet_length(job.kind) > 2600 THEN
        RAISE EXCEPTION 'E_INVALID: kind and key take more than 2,600 bytes';
    ELSIF job.on_conflict = 'rerun' AND job.key IS NOT NULL AND job.scope <> 'live' THEN
        RAISE EXCEPTION 'E_INVALID: on_conflict "rerun" needs a key that is free again when its job finishes'
            USING HINT = 'Leave key_for and unique_for out.';
    ELSIF job.on_conflict = 'rerun' AND job.after_when IS NOT NULL THEN
        RAISE EXCEPTION 'E_INVALID: on_conflict "rerun" and after cannot be combined';
    END IF;
    RETURN job;
END $$;

-- The checked request of a new job. What it leaves open comes from the kind. Python has the same checks
-- (domain/jobs/enqueue_options.py).
CREATE FUNCTION holdfast.read_request(request json, now timestamptz) RETURNS holdfast.new_job LANGUAGE plpgsql STABLE AS $$
DECLARE
    published holdfast.kind;
    options json;
    job holdfast.new_job;
BEGIN
    PERFORM holdfast.check_fields(request, 'the request', 'kind', 'payload', 'queue', 'priority', 'delay', 'run_at', 'label',
        'tags', 'key', 'key_for', 'on_conflict', 'after', 'hold', 'max_attempts', 'timeout', 'retry', 'actor');
    published := holdfast.published_kind(request);
    options := published.options;
    job.outcome := 'created';
    job.kind := published.name;
    job.kind_version := published.version;
    job.payload := holdfast.compact_json(coalesce(request->'payload', '{}'));
    PERFORM holdfast.check_payload(job.payload);
    PERFORM holdfast.check_parameters(published, job.payload);
    job.queue := coalesce(holdfast.name_field(request, 'queue'), options->>'queue');
    job.priority := coalesce(holdfast.number_field(request, 'priority', -2147483648), (options->>'priority')::integer);
    job.due_at := holdfast.checked_due_time(now,
        make_interval(secs => holdfast.seconds_of(holdfast.field(request, 'delay', 'string', 'number', 'null'))),
        holdfast.time_of(holdfast.field(request, 'run_at', 'string', 'null') #>> '{}'));
    job.label := holdfast.name_field(request, 'label');
    job.actor := coalesce(holdfast.name_field(request, 'actor'), 'holdfast:sql');
    IF request->>'actor' LIKE 'holdfast:%' THEN
        RAISE EXCEPTION 'E_INVALID: names that begin with "holdfast:" are the system''s own';
    END IF;
    job.tags := holdfast.read_tags(request);
    job.hold := coalesce((holdfast.field(request, 'hold', 'boolean') #>> '{}')::boolean, false);
    job.max_attempts := coalesce(holdfast.number_field(request, 'max_attempts', 0),
        (options->>'max_attempts')::integer, 0);
    job.max_attempts := nullif(job.max_attempts, 0);
    job.max_crashes := options->>'max_crashes';
    job.on_lost := options->>'on_lost';
    job.timeout := holdfast.seconds_of(holdfast.field(request, 'timeout', 'string', 'number', 'null'));
    job.retry := holdfast.read_retry(request, options);
    job := holdfast.read_after(job, request);
    RETURN holdfast.read_key(job, request, options);
END $$;

-- Replace the payload and options of a job that is not running, and delete its progress and steps; false: it is running, or
-- finished. The statement replace_job of Python does the same.
CREATE FUNCTION holdfast.replace_job(job holdfast.new_job, owner bigint, now timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.live SET priority = job.priority, due_at = job.due_at, token = token + 1, reader = '', refusals = NULL,
        kind_version = job.kind_version, state = CASE
        WHEN state IN ('held', 'waiting') AND NOT (state = 'held' AND reader = '' AND refusals IS NOT NULL) THEN state
        WHEN job.due_at > now THEN 'scheduled' ELSE 'ready' END
    WHERE live.id = owner AND live.state <> 'running';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM holdfast.progress WHERE progress.job_id = owner;
    DELETE FROM holdfast.step WHERE step.job_id = owner;
    UPDATE holdfast.job AS replaced SET payload = job.payload, kind_version = job.kind_version, label = job.label,
        tags = job.tags
    WHERE replaced.id = owner;
    INSERT INTO holdfast.event (job_id, at, name, actor) VALUES (owner, now, 'replaced', job.actor);
    RETURN true;
END $$;

-- The answer to a request whose key *owner* has; *again*: an earlier request of the same call.
CREATE FUNCTION holdfast.answer_conflict(job holdfast.new_job, owner bigint, is_live boolean, again boolean, now timestamptz)
RETURNS holdfast.new_job LANGUAGE plpgsql AS $$
BEGIN
    IF job.on_conflict = 'raise' THEN
        RAISE EXCEPTION 'E_DUPLICATE_JOB: job % of kind "%" has the unique key already', owner, job.kind;
    ELSIF job.on_conflict <> 'skip' AND again THEN
        RAISE EXCEPTION 'E_INVALID: two requests of one call replace the same key of kind "%"', job.kind;
    ELSIF job.on_conflict <> 'skip' AND holdfast.replace_job(job, owner, now) THEN
        job.outcome := 'replaced';
    ELSIF job.on_conflict = 'rerun' AND is_live THEN
        -- The new job starts when the running one has finished, however it does.
        UPDATE holdfast.key SET job_id = job.id, previous_id = owner WHERE key.kind = job.kind AND key.key = job.key;
        job.outcome := 'rerun';
        job.after_ids := ARRAY[owner];
        job.after_when := 'finished';
        job.after_failed := 'cancel';
        RETURN job;
    ELSE
        job.outcome := 'existing';
    END IF;
    job.id := owner;
    RETURN job;
END $$;

-- Take the key of a new job, or answer for the job that has it.
CREATE FUNCTION holdfast.take_key(job holdfast.new_job, now timestamptz) RETURNS holdfast.new_job LANGUAGE plpgsql AS $$
DECLARE
    holder holdfast.key;
    live_id bigint;
BEGIN
    INSERT INTO holdfast.key AS existing (kind, key, job_id, scope, expires_at)
    VALUES (job.kind, job.key, job.id, job.scope, now + job.period)
    ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET job_id = existing.job_id
    RETURNING * INTO holder;
    IF holder.job_id = job.id THEN
        RETURN job;
    END IF;
    PERFORM holdfast.refuse_old_snapshot(ARRAY[holder.job_id, holder.previous_id]);
    -- New statements: they see the job that had the key when the insert waited.
    live_id := coalesce((SELECT id FROM holdfast.live WHERE live.id = holder.job_id),
        (SELECT id FROM holdfast.live WHERE live.id = holder.previous_id));
    IF live_id IS NOT NULL OR holder.scope = 'forever' OR holder.expires_at > now THEN
        RETURN holdfast.answer_conflict(job, coalesce(live_id, holder.job_id), live_id IS NOT NULL, false, now);
    END IF;
    UPDATE holdfast.key SET job_id = job.id, scope = job.scope, expires_at = now + job.period, previous_id = NULL
    WHERE key.kind = job.kind AND key.key = job.key;
    RETURN job;
END $$;

-- Take the keys of new jobs in their order, so that two calls cannot deadlock.
CREATE FUNCTION holdfast.take_keys(jobs holdfast.new_job[], now timestamptz) RETURNS holdfast.new_job[] LANGUAGE plpgsql AS $$
DECLARE
    place integer;
    kind_and_key text[];
    last text[];
    owner bigint;
BEGIN
    FOR place, kind_and_key IN
        SELECT job.place, ARRAY[job.kind, job.key] FROM (
            SELECT kind, key, row_number() OVER () AS place FROM unnest(jobs)) AS job
        WHERE job.key IS NOT NULL ORDER BY job.kind COLLATE "C", job.key COLLATE "C", job.place
    LOOP
        jobs[place] := CASE WHEN kind_and_key = last THEN holdfast.answer_conflict(jobs[place], owner, true, true, now)
            ELSE holdfast.take_key(jobs[place], now) END;
        last := kind_and_key;
        owner := (jobs[place]).id;
    END LOOP;
    RETURN jobs;
END $$;

-- The jobs that a label names, with those below it, or a pattern of labels; of those with one unique key, the newest. The
-- statements find_jobs_by_label and find_jobs_by_label_pattern of Python find the same.
CREATE FUNCTION holdfast.find_labelled(name text) RETURNS SETOF bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    escape text := chr(92);
    pattern text := replace(name, escape, escape || escape);
    ids bigint[];
BEGIN
    IF strpos(name, '*') = 0 THEN
        ids := ARRAY(SELECT id FROM holdfast.job WHERE label = name
            UNION ALL SELECT id FROM holdfast.job WHERE label ~>=~ (name || '/') AND label ~<~ (name || '0'));
    ELSE
        pattern := replace(replace(replace(pattern, '%', escape || '%'), '_', escape || '_'), '*', '%');
        ids := ARRAY(SELECT id FROM holdfast.job WHERE label LIKE pattern);
    END IF;
    RETURN QUERY SELECT job.id FROM holdfast.job WHERE job.id = ANY(ids)
        AND NOT EXISTS (SELECT 1 FROM holdfast.job AS newer WHERE newer.key = job.key AND newer.id > job.id
            AND newer.kind = job.kind AND newer.label = job.label LIMIT 1 OFFSET 0)
        AND (NOT EXISTS (SELECT FROM holdfast.expired_range WHERE job.id >= first_id AND job.id < next_id)
            OR EXISTS (SELECT FROM holdfast.live WHERE live.id = job.id OFFSET 0)
            OR EXISTS (SELECT FROM holdfast.finished WHERE finished.id = job.id OFFSET 0));
END $$;

-- The ids of the jobs that a new one starts after. Those that it names by key or label may be of the same call.
CREATE FUNCTION holdfast.find_dependencies(job holdfast.new_job) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := coalesce(job.after_ids, '{}');
    name text;
    pair json;
    matching bigint[];
BEGIN
    FOR pair IN SELECT json_array_elements(job.after_keys) LOOP
        matching := ARRAY(SELECT job_id FROM holdfast.key WHERE key.kind = pair->>0 AND key.key = pair->>1);
        IF matching = '{}' THEN
            RAISE EXCEPTION 'E_DEPENDENCY_NOT_FOUND: the key of kind "%", which this job should start after, matches no job',
                pair->>0;
        END IF;
        ids := ids || matching;
    END LOOP;
    FOREACH name IN ARRAY coalesce(job.after_labels, '{}') LOOP
        matching := ARRAY(SELECT holdfast.find_labelled(name));
        IF matching = '{}' THEN
            RAISE EXCEPTION 'E_DEPENDENCY_NOT_FOUND: the label "%", which this job should start after, matches no job', name;
        END IF;
        ids := ids || matching;
    END LOOP;
    RETURN ARRAY(SELECT DISTINCT unnest(ids));
END $$;

-- Insert the dependencies of new jobs, whose rows exist. Locks keep a dependency from finishing unnoticed, or from being
-- deleted. If one has finished already, maintenance decides within a second whether the job starts.
CREATE FUNCTION holdfast.insert_dependencies(jobs holdfast.new_job[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    pairs json := (SELECT json_agg(json_build_array(job.id, dependency)) FROM unnest(jobs) AS job (id),
        LATERAL unnest(holdfast.find_dependencies(job)) AS dependency);
    ids bigint[];
    finished_ids bigint[];
    missing bigint;
BEGIN
    ids := ARRAY(SELECT DISTINCT (pair->>1)::bigint FROM json_array_elements(pairs) AS pair ORDER BY 1);
    UPDATE holdfast.live SET has_dependents = true
    WHERE id = ANY(ARRAY(SELECT id FROM holdfast.live WHERE id = ANY(ids) ORDER BY id FOR UPDATE));
    finished_ids := ARRAY(SELECT id FROM (SELECT id FROM holdfast.finished WHERE id = ANY(ids)
        ORDER BY id FOR KEY SHARE) AS locked);
    SELECT min(id) INTO missing FROM unnest(ids) AS named (id)
    WHERE id <> ALL (finished_ids) AND NOT EXISTS (SELECT FROM holdfast.live WHERE live.id = named.id);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'E_DEPENDENCY_NOT_FOUND: job %, which this job should start after, does not exist', missing;
    END IF;
    INSERT INTO holdfast.dependency (job_id, dependency_id)
    SELECT (pair->>0)::bigint, (pair->>1)::bigint FROM json_array_elements(pairs) AS pair;
    INSERT INTO holdfast.pending_effect (job_id) SELECT DISTINCT (pair->>0)::bigint
    FROM json_array_elements(pairs) AS pair WHERE (pair->>1)::bigint = ANY(finished_ids);
END $$;

-- Insert the rows of new jobs.
CREATE FUNCTION holdfast.insert_jobs(jobs holdfast.new_job[], now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.job (id, kind, kind_version, payload, label, tags, key, actor, created_at, max_attempts, max_crashes,
        on_lost, retry, timeout, after_when, after_failed)
    SELECT id, kind, kind_version, payload, label, tags, key, actor, now, max_attempts, max_crashes, on_lost, retry, timeout,
        after_when, after_failed FROM unnest(jobs);
    INSERT INTO holdfast.live (id, state, queue, kind, kind_version, priority, due_at, no_prefetch)
    SELECT id, CASE WHEN hold THEN 'held' WHEN after_when IS NOT NULL THEN 'waiting' WHEN due_at > now THEN 'scheduled'
        ELSE 'ready' END, queue, kind, kind_version, priority, due_at,
        on_lost <> 'retry' OR kind = 'command' OR octet_length(payload::text) > 32768 FROM unnest(jobs);
    IF EXISTS (SELECT FROM unnest(jobs) WHERE after_when IS NOT NULL) THEN
        PERFORM holdfast.insert_dependencies(ARRAY(SELECT job FROM unnest(jobs) AS job WHERE (job).after_when IS NOT NULL));
    END IF;
END $$;

-- Wake workers when the caller commits, which may be later: jobs that are due after these may have begun by then, so this
-- names their places. The setting holdfast.notify = off switches it off.
CREATE FUNCTION holdfast.notify_workers(jobs holdfast.new_job[], now timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('holdfast.ready', text) FROM (
        SELECT DISTINCT 'delayed' AS text FROM unnest(jobs) WHERE due_at > now AND NOT hold
        UNION ALL
        SELECT 'earlier:' || json_build_array(queue, kind, priority, (extract(epoch FROM min(due_at)) * 1000000)::bigint,
                (extract(epoch FROM max(due_at)) * 1000000)::bigint)::text || chr(10)
            || CASE WHEN strpos(queue, chr(10)) > 0 THEN 'jobs' ELSE 'jobs:' || queue END
        FROM unnest(jobs) WHERE due_at <= now AND NOT hold AND after_when IS NULL AND outcome <> 'existing'
        GROUP BY queue, kind, priority) AS texts
    WHERE current_setting('holdfast' || '.notify', true) IS DISTINCT FROM 'off' AND pg_notification_queue_usage() < 0.9
$$;

-- Enqueue from plain SQL, in the caller's transaction: SELECT * FROM holdfast.enqueue('{"kind": "mail", "payload": {"to": 7}}').
-- A request is text, json or jsonb: an object, or an array of them, which are enqueued all or not at all. Its fields are the
-- options of Python. It returns, in the order of the requests, the job of each and what happened: created, existing,
-- replaced or rerun. The kind must be published.
CREATE FUNCTION holdfast.enqueue(request anycompatible) RETURNS TABLE (id bigint, outcome text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    requests json := holdfast.parse_request(request::text);
    now timestamptz := holdfast.now();
    jobs holdfast.new_job[];
    new_jobs holdfast.new_job[];
    first bigint;
BEGIN
    IF json_typeof(requests) IS DISTINCT FROM 'array' THEN
        requests := json_build_array(requests);
    END IF;
    jobs := ARRAY(SELECT holdfast.read_request(each, now) FROM json_array_elements(requests) AS each);
    IF cardinality(jobs) = 0 THEN
        RETURN;
    END IF;
    LOOP  -- after a restore or a failover the sequence may give out ids that exist
        first := holdfast.draw_job_ids(cardinality(jobs));
        EXIT WHEN NOT EXISTS (SELECT FROM holdfast.job WHERE job.id >= first AND job.id < first + cardinality(jobs));
    END LOOP;
    FOR place IN 1..cardinality(jobs) LOOP
        jobs[place].id := first + place - 1;
    END LOOP;
    jobs := holdfast.take_keys(jobs, now);
    new_jobs := ARRAY(SELECT job FROM unnest(jobs) AS job WHERE (job).outcome IN ('created', 'rerun'));
    PERFORM holdfast.insert_jobs(new_jobs, now);
    PERFORM holdfast.notify_workers(jobs, now);
    RETURN QUERY SELECT job.id, job.outcome FROM unnest(jobs) AS job;
END $$;

-- The ready and running jobs of a queue, counted up to *most*, for autoscalers: SELECT holdfast.demand('mail'). Running jobs
-- count, so that an autoscaler takes no worker away while it has work. The result is never null.
-- planner: without the settings, a sequential scan reads the parked jobs that lie before the ready ones.
CREATE FUNCTION holdfast.demand(queue text, most integer DEFAULT 10000) RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT count(*)::integer FROM (
        SELECT 1 FROM holdfast.live WHERE holdfast.same(live.queue, $1) AND live.state = 'ready'
        UNION ALL SELECT 1 FROM holdfast.live WHERE live.queue = $1 AND live.lease_expires_at IS NOT NULL
        LIMIT $2) AS capped
$$;

-- ---- batches ------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast.batch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity text NOT NULL,
    generation integer NOT NULL,
    kind text NOT NULL,
    arguments json NOT NULL,
    source text NOT NULL,
    name text,
    state text NOT NULL
        CHECK (state IN ('ready', 'running', 'paused', 'stopped', 'done', 'partial', 'failed', 'cancelled')),
    requested text CHECK (requested IN ('pause', 'cancel')),
    aborted_by text,
    failures json,                             -- the failures for which a breaker stopped it, grouped
    total bigint,
    run_number integer NOT NULL DEFAULT 0,     -- the number of runs that have begun
    version text,
    inputs json,
    code text,
    origin text,                               -- where the function of its last run lives
    options json NOT NULL,
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    UNIQUE (identity, generation)
);
CREATE INDEX batch_open ON holdfast.batch (id) WHERE state IN ('ready', 'running', 'paused', 'stopped');
CREATE INDEX batch_running ON holdfast.batch (id) WHERE state = 'running';
CREATE INDEX batch_cancelled ON holdfast.batch (id) WHERE requested = 'cancel';
CREATE INDEX batch_finished ON holdfast.batch (finished_at) WHERE state IN ('done', 'partial', 'failed', 'cancelled');

-- The history of a batch: runs, requests of people, and the reasons of its stops.
CREATE TABLE holdfast.batch_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id bigint NOT NULL,
    at timestamptz NOT NULL,
    name text NOT NULL,
    actor text,                                -- the person; NULL: the batch itself
    run_number integer NOT NULL,
    detail json
);
CREATE INDEX batch_event_batch ON holdfast.batch_event (batch_id, id);

-- The ends of batches by result, counted in the transaction that ends each: a row for one end or for many. Only rows are
-- added, so that no end waits for another one. Maintenance adds them up.
CREATE TABLE holdfast.batch_tally (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    result text NOT NULL,
    count bigint NOT NULL
);

-- Batches that were deleted and whose units, counters or results still have rows: they are deleted in steps.
CREATE TABLE holdfast.deleted_batch (
    id bigint PRIMARY KEY,
    deleted_at timestamptz NOT NULL
);

-- The ledger. Units of a foreground run that never began have no row. A unit is 'running' while its result waits in an
-- inbox; the units that a holder runs are in in_flight.
CREATE TABLE holdfast.unit (
    batch_id bigint NOT NULL,
    key text NOT NULL,
    position bigint NOT NULL,                  -- in the input
    state text NOT NULL,
    run_number integer NOT NULL,               -- the run of the batch that met its key last
    last_run integer NOT NULL DEFAULT 0,       -- the run that last began it; 0: none has, or its first run finished it
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    poison_suspect boolean NOT NULL DEFAULT false,    -- a holder was lost while this unit was in flight
    label text,
    warning text,
    error text,
    data json,
    duration_ms bigint,
    attempted_at timestamptz,                  -- the end of its last attempt
    worker text,                               -- that made its last attempt
    earlier_errors json,                       -- the errors of earlier attempts, the newest last, a few at most
    PRIMARY KEY (batch_id, key),
    CONSTRAINT unit_state_check
        CHECK (state IN ('pending', 'running', 'done', 'failed', 'skipped', 'cancelled', 'in_doubt'))
) WITH (fillfactor = 90);
-- The order in which units run: those that no run has begun come first.
CREATE INDEX unit_pending ON holdfast.unit (batch_id, last_run, position) WHERE state = 'pending';
CREATE INDEX unit_failed ON holdfast.unit (batch_id, last_run, position) WHERE state = 'failed';
-- Done units are not in it, so that a run pays nothing for it.
CREATE INDEX unit_state ON holdfast.unit (batch_id, state, key) WHERE state <> 'done' AND state <> 'pending';

-- The units that a holder runs. Its right to them is the lease of its job.
CREATE TABLE holdfast.in_flight (
    job_id bigint PRIMARY KEY,
    batch_id bigint NOT NULL,
    token bigint NOT NULL,
    run_number integer NOT NULL,
    units json NOT NULL,                       -- keys and places, or a range and its first place
    isolated boolean NOT NULL DEFAULT false,   -- one poison suspect alone: if the holder is lost, this unit crashed it
    in_doubt_if_lost boolean NOT NULL DEFAULT false,  -- units of a lost holder become in_doubt and wait for a person
    owner json NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX in_flight_batch ON holdfast.in_flight (batch_id);

-- One row per holder and name, so that holders do not wait for each other.
CREATE TABLE holdfast.unit_count (
    batch_id bigint NOT NULL,
    job_id bigint NOT NULL,
    name text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (batch_id, job_id, name)
) WITH (fillfactor = 70);

-- Results that wait until a consumer accepts them, or until they expire.
CREATE TABLE holdfast.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox text NOT NULL,
    batch_id bigint NOT NULL,
    key text NOT NULL,
    data json NOT NULL,
    token bigint NOT NULL DEFAULT 0,           -- rises with each claim
    available_at timestamptz NOT NULL,         -- when it may be claimed
    expires_at timestamptz NOT NULL,
    UNIQUE (batch_id, key)
) WITH (fillfactor = 80);
CREATE INDEX inbox_available ON holdfast.inbox (inbox, available_at, id);
CREATE INDEX inbox_expires ON holdfast.inbox (expires_at);

-- ---- schedules ----------------------------------------------------------------------------------------------------

CREATE TABLE holdfast.schedule (
    name text PRIMARY KEY,
    definition json NOT NULL,                  -- the job to fire, and when
    declared json,                             -- the last definition in code; null: a person created it
    application text,                          -- that declared it last
    version integer NOT NULL DEFAULT 0,        -- of the definition in code: an older one never replaces a newer
    provider text,                             -- the function that lists the scopes
    paused boolean NOT NULL DEFAULT false,
    note text,
    cursor timestamptz NOT NULL,               -- all plans up to here are decided
    next_at timestamptz,                       -- the next plan to decide; null: there is none
    check_at timestamptz,                      -- when a planner checks it: after a failure, later than next_at
    fired bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,       -- failures to plan since the last success
    error text,
    token bigint NOT NULL DEFAULT 0,           -- rises with every change: earlier decisions are void; begins at a random number
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CHECK (NOT paused OR (next_at IS NULL AND check_at IS NULL))
) WITH (fillfactor = 70);
-- The planner's tick reads only the first two indexes, however many schedules are idle. Schedules that wait for their
-- provider are in the second one, so that they never hide the others. The third one finds the oldest of them.
CREATE INDEX schedule_check ON holdfast.schedule (check_at, name) WHERE check_at IS NOT NULL AND provider IS NULL;
CREATE INDEX schedule_provider ON holdfast.schedule (provider, check_at, name)
    WHERE check_at IS NOT NULL AND provider IS NOT NULL;
CREATE INDEX schedule_scoped ON holdfast.schedule (check_at, name) WHERE check_at IS NOT NULL AND provider IS NOT NULL;
CREATE INDEX schedule_failing ON holdfast.schedule (next_at) WHERE failures > 0;
-- Lists of schedules by condition and by kind.
CREATE INDEX schedule_failing_names ON holdfast.schedule (name) WHERE failures > 0;
CREATE INDEX schedule_paused ON holdfast.schedule (name) WHERE paused;
CREATE INDEX schedule_over ON holdfast.schedule (name) WHERE next_at IS NULL AND NOT paused AND failures = 0;
CREATE INDEX schedule_kind ON holdfast.schedule ((definition->>'kind'), name);

-- Plans that were fired: each time of a schedule once per scope. The rows outlive their schedule, so that a schedule that
-- is deleted and created again repeats no plan.
CREATE TABLE holdfast.plan (
    schedule text NOT NULL,
    time timestamptz NOT NULL,
    scope text NOT NULL,
    origin text NOT NULL CHECK (origin IN ('due', 'trigger', 'backfill')),
    job_id bigint NOT NULL,
    open boolean NOT NULL,                     -- its job may be live: the next plan of the scope checks it
    queued boolean NOT NULL,                   -- it waits for the plan before it
    actor text NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, time, scope)
) WITH (fillfactor = 90);
CREATE INDEX plan_open ON holdfast.plan (schedule, scope, time) WHERE open AND NOT queued;
CREATE INDEX plan_line ON holdfast.plan (schedule, scope, time) WHERE open AND queued;
CREATE INDEX plan_queued ON holdfast.plan (job_id) WHERE queued;
CREATE INDEX plan_job ON holdfast.plan (job_id);
-- Rows arrive in the order of their time, so retention needs only page ranges.
CREATE INDEX plan_decided ON holdfast.plan USING brin (decided_at);

-- Plans that were not fired, as ranges with both ends included. An empty scope means all scopes.
CREATE TABLE holdfast.skipped_plan (
    schedule text NOT NULL,
    last timestamptz NOT NULL,
    first timestamptz NOT NULL,
    scope text NOT NULL,
    reason text NOT NULL
        CHECK (reason IN ('catch_up', 'window', 'late', 'overlap', 'backlog', 'paused', 'edited', 'scope')),
    count bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, last, first, scope, reason)
);
CREATE INDEX skipped_plan_decided ON holdfast.skipped_plan (decided_at);

-- The executions of jobs, one row for each: runs that are recorded as attempts, the last one of a job that is done, and those
-- that run now. Neither payloads nor results. The guide to schedules describes the columns.
CREATE VIEW holdfast.execution_view AS
    SELECT attempt.job_id, attempt.number AS attempt, job.kind, coalesce(
            (SELECT live.queue FROM holdfast.live WHERE live.id = attempt.job_id),
            (SELECT finished.queue FROM holdfast.finished WHERE finished.id = attempt.job_id)) AS queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, attempt.worker, worker.host, attempt.reason AS outcome,
        job.created_at AS enqueued_at, attempt.started_at, attempt.finished_at,
        extract(epoch FROM attempt.finished_at - attempt.started_at)::double precision AS seconds, attempt.exit_code, attempt.error
    FROM holdfast.attempt JOIN holdfast.job ON job.id = attempt.job_id
    LEFT JOIN holdfast.plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast.worker ON worker.id = attempt.worker
    UNION ALL
    SELECT finished.id AS job_id, finished.attempts AS attempt, job.kind, finished.queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, finished.worker, worker.host, 'done' AS outcome,
        job.created_at AS enqueued_at, finished.started_at, finished.finished_at,
        extract(epoch FROM finished.finished_at - finished.started_at)::double precision AS seconds, NULL::integer AS exit_code, NULL::text AS error
    FROM holdfast.finished JOIN holdfast.job ON job.id = finished.id
    LEFT JOIN holdfast.plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast.worker ON worker.id = finished.worker
    WHERE finished.state = 'done'
    UNION ALL
    SELECT live.id AS job_id, live.attempts::integer AS attempt, job.kind, live.queue,
        job.label, plan.schedule, plan.time AS plan_time, plan.scope, live.worker, worker.host, 'running' AS outcome,
        job.created_at AS enqueued_at, live.started_at, NULL::timestamptz AS finished_at,
        NULL::double precision AS seconds, NULL::integer AS exit_code, NULL::text AS error
    FROM holdfast.live JOIN holdfast.job ON job.id = live.id
    LEFT JOIN holdfast.plan ON plan.job_id = job.id AND plan.decided_at = job.created_at
    LEFT JOIN holdfast.worker ON worker.id = live.worker
    WHERE live.lease_expires_at IS NOT NULL AND live.started_at IS NOT NULL;

-- ---- access -------------------------------------------------------------------------------------------------------

-- The actions of people, oldest first.
CREATE TABLE holdfast.audit_entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    via text NOT NULL CHECK (via IN ('cli', 'web', 'api')),
    action text NOT NULL,
    target text NOT NULL,
    count bigint,
    note text,
    os_user text,
    db_user text DEFAULT session_user
);
CREATE INDEX audit_entry_time ON holdfast.audit_entry (at);

-- Tokens. Only a hash is stored; the prefix is public and finds it. Revoked tokens stay: audit entries name them.
CREATE TABLE holdfast.credential (
    prefix text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    inbox text CHECK (inbox IS NULL OR role <> 'admin'),     -- the one inbox that the token may use; NULL: no limit
    hash text NOT NULL,                        -- SHA-256 of the token, which is 256 random bits
    actor text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX credential_name ON holdfast.credential (name) WHERE revoked_at IS NULL;
-- Delete tokens that were revoked before an age. With the rights of the owner: a worker must not reach valid tokens.
CREATE FUNCTION holdfast.prune_credentials(age interval, most bigint) RETURNS SETOF text LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM holdfast.credential WHERE prefix = ANY (ARRAY(
        SELECT prefix FROM holdfast.credential WHERE revoked_at < (SELECT holdfast.now()) - age
        ORDER BY revoked_at LIMIT most FOR UPDATE SKIP LOCKED))
    RETURNING prefix;
$$;
REVOKE ALL ON FUNCTION holdfast.prune_credentials(interval, bigint) FROM PUBLIC;

-- Sessions of people in browsers, and links that open one session each. A session that was signed out of has no row.
CREATE TABLE holdfast.session (
    hash text PRIMARY KEY,                     -- SHA-256 of the cookie, or of the link
    is_link boolean NOT NULL,
    name text NOT NULL,                        -- the person; empty for a link
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    prefix text,                               -- of the token that opened it; null: a link did
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX session_expires ON holdfast.session (expires_at);

-- Secrets that all web servers of a store share, such as the key that signs forms.
CREATE TABLE holdfast.secret (
    name text PRIMARY KEY,
    value text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE holdfast.saved_filter (
    name text PRIMARY KEY,
    filter text NOT NULL,
    actor text NOT NULL,
    created_at timestamptz NOT NULL
);

-- Answers to requests that carried an idempotency key: a repeated request gets the same answer.
CREATE TABLE holdfast.idempotency_key (
    credential text NOT NULL,
    key text NOT NULL,
    digest text NOT NULL,
    status integer,                            -- null only within the transaction of the request
    body text,
    at timestamptz NOT NULL,
    PRIMARY KEY (credential, key)
);
CREATE INDEX idempotency_key_time ON holdfast.idempotency_key (at);
