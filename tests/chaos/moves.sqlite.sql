-- Writes down every move behind the store's back. Statements are parted by empty lines.

CREATE TABLE chaos_move (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, step TEXT, job INTEGER, queue TEXT, old TEXT, state TEXT, token INTEGER,
    kind TEXT, priority INTEGER, at REAL
)

CREATE TABLE chaos_batch (seq INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER, state TEXT)

CREATE TABLE chaos_effect (unit TEXT)

CREATE TRIGGER chaos_in AFTER INSERT ON holdfast_live BEGIN
    INSERT INTO chaos_move (step, job, queue, state, token, kind, priority, at)
    VALUES ('in', new.id, new.queue, new.state, new.token, new.kind, new.priority,
        (julianday('now') - 2440587.5) * 86400.0);
END

CREATE TRIGGER chaos_moves AFTER UPDATE ON holdfast_live WHEN old.state <> new.state OR old.token <> new.token BEGIN
    INSERT INTO chaos_move (step, job, queue, old, state, token, kind, priority, at)
    VALUES ('move', new.id, new.queue, old.state, new.state, new.token, new.kind, new.priority,
        (julianday('now') - 2440587.5) * 86400.0);
END

CREATE TRIGGER chaos_ends AFTER INSERT ON holdfast_finished BEGIN
    INSERT INTO chaos_move (step, job, queue, state, token, kind, priority, at)
    VALUES ('end', new.id, new.queue, new.state, new.token, new.kind, new.priority,
        (julianday('now') - 2440587.5) * 86400.0);
END

CREATE TRIGGER chaos_batches AFTER UPDATE ON holdfast_batch WHEN old.state <> new.state BEGIN
    INSERT INTO chaos_batch (id, state) VALUES (new.id, new.state);
END
