-- What PostgreSQL dependencies to be exact when something happens at the same time, or when it crashes.

-- The lives of a server. One row, made by the first who writes. It is unlogged on purpose: a crash empties it, a failover
-- comes without it, and then the numbers of transactions from before mean nothing any more (postgres/commits.py).
CREATE UNLOGGED TABLE holdfast.epoch (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    id uuid NOT NULL
);

-- A claim that began before a payload was changed has the lock after it, and would hand the old one out. A volatile
-- function sees what is committed when it is called. Only jobs whose token has risen before are read in this way.
CREATE FUNCTION holdfast.payload_of(job bigint) RETURNS text LANGUAGE sql VOLATILE
    AS 'SELECT payload::text FROM holdfast.job WHERE id = $1';
CREATE FUNCTION holdfast.checkpoint_of(job bigint) RETURNS text LANGUAGE sql VOLATILE
    AS 'SELECT checkpoint::text FROM holdfast.progress WHERE job_id = $1';
