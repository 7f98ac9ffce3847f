"""The database roles of least privilege: which tables each of them may read and change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from psycopg import sql
from psycopg.sql import Identifier

from holdfast.errors import PrivilegeMissing
from holdfast.store.engine.migrations import TABLES
from holdfast.store.postgres.connections import Connection

#: Tables that hold secrets: hashes of tokens and sessions, the key of forms, answers to requests.
PRIVATE = ("credential", "session", "secret", "idempotency_key")
#: Tables that a worker does not write.
GUARDED = ("meta", "timeline", "command_switch", "secret_field", "audit_entry", *PRIVATE)
CHANGE = "SELECT, INSERT, UPDATE, DELETE"
#: Write an audit entry; its db_user is the user of the session, and no other.
RECORD = "INSERT (at, actor, via, action, target, count, note, os_user)"
#: The function whose execution is the right to commands. See 0001_schema.sql.
COMMAND_RIGHT = "may_run_commands"


class Grant(NamedTuple):
    """Privileges on some tables, or on all tables but some."""

    privileges: str
    tables: tuple[str, ...] = ()
    all_but: tuple[str, ...] | None = None

    def on(self, tables: Sequence[str]) -> list[str]:
        """The tables of the grant, among those of the schema."""
        if self.all_but is None:
            return [table for table in tables if table in self.tables]
        return [table for table in tables if table not in self.all_but]


_PRODUCER = (
    Grant(
        "SELECT",
        (
            *("kind", "queue", "worker", "live", "expired_range"),
            *("key", "dependency", "command_switch", "secret_field"),
        ),
    ),
    # No payloads, results, errors and checkpoints: those of its own jobs come from a function (own_job).
    Grant("SELECT (id, kind, label, key, tags, nonce, created_at, after_when, after_failed)", ("job",)),
    Grant("SELECT (id, state, queue, kind, priority, attempts, finished_at, reason)", ("finished",)),
    Grant("SELECT (job_id)", ("progress",)),
    # Triggers keep the index of tags, when a job is inserted and when its tags are replaced.
    Grant("SELECT, INSERT, DELETE", ("job_tag",)),
    Grant("INSERT", ("kind", "job", "live", "finished", "key", "dependency", "pending_effect", "event", "trace")),
    # A trigger keeps kinds as workers have published them.
    Grant("UPDATE", ("kind", "key")),
    # A new enqueue with the same key replaces the payload. A trigger refuses all other changes of payloads.
    Grant("UPDATE (payload, kind_version, label, tags)", ("job",)),
    # A trigger refuses changes of running jobs, and deletes of jobs that are not waiting.
    Grant("UPDATE (state, priority, due_at, token, kind_version, reader, refusals, has_dependents, note)", ("live",)),
    # To lock a finished dependency, and no more.
    Grant("UPDATE (priority)", ("finished",)),
    # A job whose dependency has failed is cancelled by its enqueue; a replaced job loses its progress and steps.
    Grant("DELETE", ("live", "progress", "step")),
    Grant("SELECT (job_id)", ("step",)),
    Grant("SELECT, INSERT", ("epoch",)),
    Grant(f"SELECT (id), {RECORD}", ("audit_entry",)),
)
_WORKER = (
    Grant(CHANGE, all_but=GUARDED),
    Grant("SELECT", ("command_switch", "secret_field", "timeline")),
    # Workers prune old rows: FOR UPDATE needs the right to update a column.
    Grant("SELECT, UPDATE (target, count), DELETE", ("audit_entry",)),
    Grant("SELECT (ctid, key, at), UPDATE (at), DELETE", ("idempotency_key",)),
)
_OPERATOR = (*_WORKER, Grant(RECORD, ("audit_entry",)))
#: What each role may do, besides reading ``meta`` and the views. docs/reference/roles.md has the matrix.
ROLES: dict[str, tuple[Grant, ...]] = {
    # Reads everything except secrets.
    "reader": (Grant("SELECT", all_but=PRIVATE),),
    # Enqueues jobs of registered kinds, also with keys and dependencies; waits, and reads the results of its own jobs.
    "producer": _PRODUCER,
    # The same, and commands: any program, which a worker runs.
    "command_producer": _PRODUCER,
    # Runs jobs, batches, schedules and retention. Tokens and sessions are out of its reach; it writes no audit entries.
    "worker": _WORKER,
    # All actions of people at the command line, each with its audit entry; and all that a worker does.
    "operator": _OPERATOR,
    # What the web server does: all that an operator does, and sessions. It cannot create tokens.
    "dashboard": (
        *_OPERATOR,
        Grant("SELECT, UPDATE (last_used_at)", ("credential",)),
        Grant("SELECT, INSERT", ("secret",)),
        Grant(CHANGE, ("session", "idempotency_key")),
    ),
    # Also tokens, backups and the switch of commands.
    "admin": (Grant(CHANGE, all_but=("meta", "timeline")), Grant("SELECT", ("timeline",))),
}
#: Roles that may enqueue and change jobs of the built-in kinds.
COMMAND_ROLES = frozenset(ROLES) - {"reader", "producer"}
#: Roles that apply retention. Its functions run with the rights of the owner: they create and drop tables, and delete
#: revoked tokens.
RETENTION_ROLES = COMMAND_ROLES - {"command_producer"}
#: Roles that read no payloads and results, except those of jobs that their login has enqueued.
PRODUCERS = frozenset({"producer", "command_producer"})
#: The views of jobs and of their executions.
VIEWS = ("live_view", "finished_view", "execution_view")
#: The function that draws ids of new jobs, with the rights of the owner.
DRAW = "draw_job_ids"
_EXECUTE = {
    COMMAND_RIGHT: COMMAND_ROLES,
    "maintain_ranges": RETENTION_ROLES,
    "prune_credentials": RETENTION_ROLES,
    DRAW: frozenset(ROLES) - {"reader"},
    "own_job": PRODUCERS,
}


def role_statements(schema: str, tables: Sequence[str]) -> Iterator[sql.Composed]:
    """The statements that create all roles and give them their privileges."""
    # A user without CREATEROLE may run it again, once the roles exist.
    missing = sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {name}) THEN"
        " CREATE ROLE {role} NOLOGIN; END IF; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    for role in ROLES:
        name = f"{schema}_{role}"
        yield missing.format(role=Identifier(name), name=sql.Literal(name))
    yield from _grants(schema, tables, ROLES)


def require_creator(connection: Connection, schema: str) -> None:
    """Check that this user may create the roles that are missing.

    Raises:
        PrivilegeMissing: It may not.
    """
    names = [f"{schema}_{role}" for role in ROLES]
    existing = {
        name for (name,) in connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", (names,))
    }
    query = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    (may_create,) = connection.execute(query).fetchone() or (False,)
    if (missing := [name for name in names if name not in existing]) and not may_create:
        user = connection.info.user
        raise PrivilegeMissing(
            f"database user {user} may not create roles, and these do not exist yet: {', '.join(missing)}",
            hint=f"Let a superuser run holdfast db roles --apply once, or: ALTER ROLE {user} CREATEROLE.",
        )


def _grants(schema: str, tables: Sequence[str], roles: Iterable[str]) -> Iterator[sql.Composed]:
    """The statements that give roles exactly their privileges, and revoke all others."""
    for role in roles:
        words = {"schema": Identifier(schema), "role": Identifier(f"{schema}_{role}")}
        yield from (text.format(**words) for text in map(sql.SQL, _USAGE))
        for grant in ROLES[role]:
            if chosen := grant.on(tables):
                listed = sql.SQL(", ").join(Identifier(schema, table) for table in chosen)
                privileges = sql.SQL(grant.privileges)
                yield sql.SQL("GRANT {privileges} ON {tables} TO {role}").format(
                    privileges=privileges, tables=listed, **words
                )
        for function, allowed in _EXECUTE.items():
            if role in allowed:
                right = sql.SQL("GRANT EXECUTE ON FUNCTION {function} TO {role}")
                yield right.format(function=Identifier(schema, function), **words)
        if role not in PRODUCERS:
            for view in VIEWS:
                right = sql.SQL("GRANT SELECT ON {view} TO {role}")
                yield right.format(view=Identifier(schema, view), **words)
        if role != "reader":
            yield sql.SQL("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}").format(**words)


_USAGE = (
    "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM {role}",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON {schema}.meta TO {role}",
)

#: Contents of tables in the words of people. Every enqueue draws an id.
_CONTENTS = {"audit_entry": "the audit log", "event": "the history of jobs", "credential": "tokens", "batch": "batches"}
_CONTENTS |= {table: f"{table}s" for table in ("job", "queue", "worker", "schedule", "session", "unit")}
_CONTENTS |= dict.fromkeys(("live", "finished", DRAW), "jobs")
_CHANGES = {"INSERT": "INSERT INTO", "UPDATE": "UPDATE", "DELETE": "DELETE FROM"}


def denial(text: str, statement: str, *, user: str, schema: str) -> PrivilegeMissing:
    """The error for a privilege that a user lacks, with the smallest role that has it.

    *text* is PostgreSQL's own, in any language: it names the table. *statement* shows what it was to do there.
    """
    text = text.splitlines()[0]
    words = [word.removesuffix("_view") for word in re.findall(r"\w+", text)]
    table = next((word for word in words if word in (*TABLES, DRAW)), None)
    if text.startswith("E_READ_ONLY: "):  # raised by a trigger
        action, role = re.sub(r'^E_READ_ONLY: role "[^"]*" ', "", text), "command_producer"
    elif table is None:
        return PrivilegeMissing(f"database user {user} lacks a privilege: {text}")
    else:
        changes = {name for name, words in _CHANGES.items() if re.search(rf'\b{words} [\w."]*\b{table}\b', statement)}
        use = "change" if changes or table == DRAW else "read"
        thing = table if table == DRAW else f"table {table}"
        action = f"may not {use} {_CONTENTS[table]} ({thing})" if table in _CONTENTS else f"may not {use} the {thing}"
        role = "producer" if table == DRAW else _smallest_role(table, changes or {"SELECT"})
    also = f" (a worker {schema}_worker)" if role == "operator" and table != "audit_entry" else ""
    hint = f"As the owner of the database: GRANT {schema}_{role} TO {user}. See also holdfast db roles."
    return PrivilegeMissing(f"database user {user} {action}; it needs the role {schema}_{role}{also}", hint=hint)


def _smallest_role(table: str, needed: set[str]) -> str:
    """The first role with these privileges on all columns of a table."""
    for role in ("reader", "producer", "operator", "dashboard"):
        grants = [grant.privileges for grant in ROLES[role] if grant.on([table])]
        if needed <= {name for each in grants for name in re.findall(r"[A-Z]+\b(?! \()", each)}:
            return role
    return "admin"


def renew_grants(connection: Connection, schema: str) -> None:
    """Give the roles that exist their privileges on all tables of this version of the schema.

    Runs in the transaction of a migration: a role never lacks a new table.
    """
    query = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)"
    names = {f"{schema}_{role}": role for role in ROLES}
    existing = [names[name] for (name,) in connection.execute(query, (list(names),))]
    for statement in _grants(schema, list_tables(connection, schema), existing):
        connection.execute(statement)


def list_tables(connection: Connection, schema: str) -> list[str]:
    """The tables of the schema. Privileges on a table apply to its partitions, too."""
    query = (
        "SELECT relname FROM pg_class AS class JOIN pg_namespace AS namespace ON namespace.oid = relnamespace"
        " WHERE nspname = %s AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname"
    )
    return [name for (name,) in connection.execute(query, (schema,))]
