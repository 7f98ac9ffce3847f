-- The lives of a server on PostgreSQL.

-- One row, made by the first who writes. It is unlogged on purpose: a crash empties it, a failover comes without it,
-- and then the numbers of transactions from before mean nothing any more (postgres/commits.py).
CREATE UNLOGGED TABLE holdfast.epoch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id uuid NOT NULL
);
