-- Batches on workers, and results that are handed over through an inbox.

-- A unit is running while its result waits for a consumer; what else is under way is told by who has it in hand.
ALTER TABLE holdfast.unit DROP CONSTRAINT unit_state_check;
ALTER TABLE holdfast.unit ADD CONSTRAINT unit_state_check
    CHECK (state IN ('pending', 'running', 'done', 'failed', 'skipped', 'cancelled', 'in_doubt'));
DROP INDEX holdfast.unit_open;
CREATE INDEX unit_pending ON holdfast.unit (batch_id, position) WHERE state = 'pending';

CREATE INDEX batch_running ON holdfast.batch (id) WHERE state = 'running';

-- A result that waits until its consumer has taken and accepted it, or until it expires.
CREATE TABLE holdfast.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox text NOT NULL,
    batch_id bigint NOT NULL,
    key text NOT NULL,
    data json NOT NULL,
    token bigint NOT NULL DEFAULT 0,           -- rises each time it is taken
    available_at timestamptz NOT NULL,              -- when it may be taken
    expires_at timestamptz NOT NULL,
    UNIQUE (batch_id, key)
) WITH (fillfactor = 80);
CREATE INDEX inbox_free ON holdfast.inbox (inbox, available_at, id);
CREATE INDEX inbox_expires ON holdfast.inbox (expires_at);
