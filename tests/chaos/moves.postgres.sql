-- Writes down every move behind the store's back. Statements are parted by empty lines.
-- A number is drawn before its transaction commits. So the end of a job may seem earlier than it was, never later;
-- claims of a limited queue, and enqueues under one key, come one after the other by the store's own locks.

DROP TABLE IF EXISTS chaos_move, chaos_batch, chaos_effect

CREATE TABLE chaos_move (
    seq bigserial PRIMARY KEY, step text, job bigint, queue text, old text, state text, token bigint,
    kind text, priority integer, at double precision
)

CREATE TABLE chaos_batch (seq bigserial PRIMARY KEY, id bigint, state text)

CREATE TABLE chaos_effect (unit text)

CREATE OR REPLACE FUNCTION chaos_in() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_move (step, job, queue, state, token, kind, priority, at)
    VALUES (TG_ARGV[0], new.id, new.queue, new.state, new.token, new.kind, new.priority,
        extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$

CREATE OR REPLACE FUNCTION chaos_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_move (step, job, queue, old, state, token, kind, priority, at)
    VALUES ('move', new.id, new.queue, old.state, new.state, new.token, new.kind, new.priority,
        extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$

CREATE OR REPLACE FUNCTION chaos_batches() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_batch (id, state) VALUES (new.id, new.state);
    RETURN NULL;
END $$

CREATE OR REPLACE TRIGGER chaos_in AFTER INSERT ON holdfast.live FOR EACH ROW EXECUTE FUNCTION chaos_in('in')

CREATE OR REPLACE TRIGGER chaos_moves AFTER UPDATE ON holdfast.live FOR EACH ROW
    WHEN (old.state <> new.state OR old.token <> new.token) EXECUTE FUNCTION chaos_moves()

CREATE OR REPLACE TRIGGER chaos_ends AFTER INSERT ON holdfast.finished FOR EACH ROW EXECUTE FUNCTION chaos_in('end')

CREATE OR REPLACE TRIGGER chaos_batches AFTER UPDATE ON holdfast.batch FOR EACH ROW
    WHEN (old.state <> new.state) EXECUTE FUNCTION chaos_batches()
