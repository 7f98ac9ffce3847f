"""Work on a whole PostgreSQL store: health, size, and copies of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.errors import ConfigurationLimitExceeded, InsufficientPrivilege
from psycopg.sql import Identifier

from holdfast.errors import PrivilegeMissing
from holdfast.store.engine.migrations import schema_problems
from holdfast.store.engine.operation import from_micros
from holdfast.store.postgres import health
from holdfast.store.postgres.connections import Connection, translated
from holdfast.store.postgres.roles import list_tables, require_creator, role_statements
from holdfast.store.postgres.schema import read_objects, read_record
from holdfast.store.postgres.statements import quoted

if TYPE_CHECKING:
    from holdfast.domain.health_check import HealthCheck
    from holdfast.store.engine.backend import ConnectionUse
    from holdfast.store.postgres.backend import PostgresBackend

#: Indexes of a table that take more than this, in total and per row, are mostly empty: vacuum alone frees nothing.
EMPTY_INDEX_BYTES, INDEX_BYTES_PER_ROW = 8_000_000, 500
#: Rows that a cursor fetches at a time.
FETCH_SIZE = 2000
#: Conversions of PostgreSQL's types to the forms of SQLite, and back.
_TO_SQLITE = {
    "timestamp with time zone": "(extract(epoch FROM {0}) * 1000000)::bigint",
    "boolean": "{0}::integer",
    "json": "{0}::text",
    "ARRAY": "to_json({0})::text",
}
_FROM_SQLITE: dict[str, Callable[[Any], Any]] = {
    "timestamp with time zone": from_micros,
    "boolean": bool,
    "ARRAY": json.loads,
}
#: Tables with rows of requests. The key of a job that was deleted may still be taken: keys are copied as they are.
_OF_JOBS = ("job", "dependency", "attempt", "event", "progress", "step", "trace")
#: Tables that may have rows before a copy; existing rows stay.
_SHARED = ("kind", "queue", "worker")


class PostgresDatabase:
    """Works on connections of its own."""

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._schema = backend.statements.schema

    #: Only a SQLite store can be moved.
    successor = None

    @property
    def server(self) -> str:
        with self._connection() as connection:
            return f"PostgreSQL {connection.info.server_version // 10000}.{connection.info.server_version % 10000}"

    def size(self) -> int:
        """The size of all tables and indexes, in bytes."""
        with self._connection() as connection:
            query = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE relkind = 'r'"
            row = connection.execute(f"{query} AND relnamespace = %s::regnamespace".encode(), (quoted(self._schema),))
            return int((row.fetchone() or (0,))[0])

    def damage(self) -> list[str]:
        query = (
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE c.relnamespace = %s::regnamespace AND NOT i.indisvalid"
        )
        with self._connection() as connection:
            return [f"the index {name} is not valid" for (name,) in connection.execute(query, (quoted(self._schema),))]

    def schema_problems(self, *, essential: bool = False) -> list[str]:
        """Differences between the schema of this version and the present one."""
        statements = self._backend.statements
        with self._connection() as connection:
            record, present = read_record(connection, statements), read_objects(connection, statements)
        return schema_problems("postgres", record, present, essential=essential)

    def health(self) -> Iterator[HealthCheck]:
        """Checks of the server's version, hosts, connections and disk, of this user's privileges, and of vacuum."""
        with self._connection() as connection:
            yield health.check_version(connection)
            yield from health.check_hosts(self._backend.host_states())
            yield health.check_privileges(connection, self._schema)
            yield from health.check_connections(connection)
            yield health.check_disk(connection)
            yield from health.check_vacuum(connection)

    def is_disk_full(self) -> bool:
        """Whether the server has no room for a small file."""
        with self._connection() as connection, suppress(ConfigurationLimitExceeded):
            return health.is_disk_full(connection)
        return False

    def connection_use(self) -> list[ConnectionUse]:
        """The connections in use on the server, in the database and of this user, where they have a limit."""
        with self._connection() as connection:
            return health.connection_use(connection)

    def vacuum(self) -> None:
        """Vacuum and analyse every table, and rebuild indexes that are mostly empty. No other process waits."""
        query = (
            "SELECT relname FROM pg_class AS class JOIN pg_namespace AS namespace ON namespace.oid = relnamespace"
            " WHERE nspname = %s AND relkind = 'r' AND pg_indexes_size(class.oid) > %s + greatest(reltuples, 0) * %s"
        )
        with self._connection(autocommit=True) as connection:
            for table in list_tables(connection, self._schema):
                connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(Identifier(self._schema, table)))
            for (table,) in connection.execute(
                query, (self._schema, EMPTY_INDEX_BYTES, INDEX_BYTES_PER_ROW)
            ).fetchall():
                connection.execute(sql.SQL("REINDEX TABLE CONCURRENTLY {}").format(Identifier(self._schema, table)))

    def roles(self) -> list[str]:
        """The statements that create the roles of least privilege."""
        with self._connection() as connection:
            tables = list_tables(connection, self._schema)
            return [statement.as_string(connection) for statement in role_statements(self._schema, tables)]

    def apply_roles(self) -> list[str]:
        """Create the roles that are missing, and grant all of them exactly their privileges.

        Raises:
            PrivilegeMissing: Roles are missing, and this user may not create them.
        """
        with self._connection() as connection:
            require_creator(connection, self._schema)
        statements = self.roles()
        self.apply(statements)
        return statements

    def apply(self, statements: list[str]) -> None:
        with self._connection() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def tables(self) -> list[str]:
        """The tables of the schema, without their partitions."""
        with self._connection() as connection:
            return list_tables(connection, self._schema)

    def columns(self, table: str) -> list[str]:
        """The columns of a table that a copy writes."""
        with self._connection() as connection:
            return list(self._types(connection, table))

    @contextmanager
    def snapshot(self) -> Iterator[Callable[[str], tuple[list[str], Iterator[Any]]]]:
        """A function from a table to its columns and rows, in the forms of SQLite, all of one snapshot."""
        with self._connection() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Before the snapshot is taken: it would not see jobs that retention moves to another range after it.
            lock = sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE")
            connection.execute(lock.format(Identifier(self._schema, "finished")))
            self._require_all_tables(connection)

            def rows(table: str) -> tuple[list[str], Iterator[Any]]:
                types = self._types(connection, table)
                cells = sql.SQL(", ").join(
                    sql.SQL(_TO_SQLITE.get(kind, "{0}")).format(Identifier(name)) for name, kind in types.items()
                )
                order = Identifier("id") if table == "event" else sql.SQL("1, 2")
                where = self._not_expired(table) if table in _OF_JOBS else sql.SQL("")
                name = Identifier(self._schema, table)
                query = sql.SQL("SELECT {} FROM {}{} ORDER BY {}").format(cells, name, where, order)
                return list(types), _fetched(connection, query)

            yield rows

    def _not_expired(self, table: str) -> sql.Composed:
        """The condition that leaves out rows of jobs whose outcome was dropped, and which are deleted in steps."""
        text = (
            " WHERE NOT EXISTS (SELECT FROM {schema}.expired_range WHERE {id} >= first_id AND {id} < next_id)"
            " OR EXISTS (SELECT FROM {schema}.live WHERE live.id = {id})"
            " OR EXISTS (SELECT FROM {schema}.finished WHERE finished.id = {id})"
        )
        column = Identifier(self._schema, table, "id" if table == "job" else "job_id")
        return sql.SQL(text).format(schema=Identifier(self._schema), id=column)

    def _require_all_tables(self, connection: Connection) -> None:
        """Refuse a user who cannot read every table: the catalogue shows no columns of the others."""
        query = (
            "SELECT name FROM unnest(%s::text[]) AS name"
            " WHERE NOT has_table_privilege(format('%%I.%%I', %s::text, name), 'SELECT') ORDER BY name"
        )
        tables = list_tables(connection, self._schema)
        if hidden := [name for (name,) in connection.execute(query, (tables, self._schema))]:
            user, role = connection.info.user, f"{self._schema}_admin"
            text = f"database user {user} may not read {', '.join(hidden)}; a copy of the store needs the role {role}"
            raise PrivilegeMissing(text, hint=f"As the owner of the database: GRANT {role} TO {user}.")

    def last_id(self) -> int:
        """The highest id of any job so far."""
        with self._connection() as connection:
            # From the catalogue: roles may use the sequence, but not select from it.
            query = "SELECT last_value FROM pg_sequences WHERE schemaname = %s AND sequencename = 'job_id'"
            (last,) = connection.execute(query, (self._schema,)).fetchone() or (0,)
            return int(last or 0)

    @contextmanager
    def bulk_load(self, *, last_id: Callable[[], int]) -> Iterator[Callable[[str, list[str], Iterator[Any]], int]]:
        """A function that inserts the rows of a table; all tables are kept, or none.

        New ids follow the ids that were inserted and *last_id*, which is called after the last table.
        """
        self._begin_range(last_id())
        with self._connection() as connection:

            def load(table: str, columns: list[str], rows: Iterator[Any]) -> int:
                types = self._types(connection, table)
                converters = [_FROM_SQLITE.get(types[name]) for name in columns]
                converted = (
                    [cell if cell is None or to is None else to(cell) for cell, to in zip(row, converters, strict=True)]
                    for row in rows
                )
                return self._insert(connection, table, columns, converted)

            yield load
            query = (
                "SELECT setval('holdfast.job_id', greatest(last_value, %s, (SELECT max(id) FROM holdfast.job)))"
                " FROM holdfast.job_id"
            )
            connection.execute(self._backend.statements.in_schema(query).encode(), (last_id(),))
            for table in ("batch", "inbox", "pending_effect", "autoscaler_decision", "audit_entry"):
                query = (
                    "SELECT setval(pg_get_serial_sequence('holdfast.batch', 'id'), max(id)) FROM holdfast.batch"
                    " HAVING count(*) > 0"
                ).replace("batch", table)
                connection.execute(self._backend.statements.in_schema(query).encode())

    def _begin_range(self, last: int) -> None:
        """Begin a range above the ids of a copy: retention can drop the range of a copied history as a whole."""
        in_schema = self._backend.statements.in_schema
        raised = in_schema("SELECT setval('holdfast.job_id', greatest(last_value, %s)) FROM holdfast.job_id")
        with self._connection(autocommit=True) as connection, suppress(InsufficientPrivilege):
            connection.execute(raised.encode(), (last,))
            connection.execute(in_schema("SELECT FROM holdfast.maintain_ranges(NULL, 1, 1)").encode())

    def _insert(self, connection: Connection, table: str, columns: list[str], rows: Iterator[Any]) -> int:
        names = sql.SQL(", ").join(map(Identifier, columns))
        where = Identifier(self._schema, table)
        cursor = connection.cursor()
        if table in _SHARED:
            values = sql.SQL(", ").join(sql.Placeholder() * len(columns))
            insert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(where, names, values)
            cursor.executemany(insert, rows)
            return max(0, cursor.rowcount)
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(where, names)) as copy:
            for row in rows:
                copy.write_row(row)
        return cursor.rowcount

    def _types(self, connection: Connection, table: str) -> dict[str, str]:
        query = (
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
        )
        types = dict(connection.execute(query, (self._schema, table)).fetchall())
        if table == "event":
            del types["id"]  # events get new ids in the target of a copy
        return types

    @contextmanager
    def _connection(self, *, autocommit: bool = False) -> Iterator[Connection]:
        with translated(), self._backend.connect(autocommit=autocommit) as connection:
            yield connection


def _fetched(connection: Connection, query: sql.Composed) -> Iterator[Any]:
    """The rows, fetched in portions: a table may be larger than the memory."""
    with connection.cursor("holdfast_copy") as cursor:
        cursor.itersize = FETCH_SIZE
        yield from cursor.execute(query)
