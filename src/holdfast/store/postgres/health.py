"""Health checks of a PostgreSQL server: version, privileges, hosts, connections, disk and vacuum."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from psycopg import errors

from holdfast.domain.health_check import HealthCheck, fail, ok, warn
from holdfast.errors import FormerPrimary, StoreFull
from holdfast.store.engine.backend import ConnectionUse
from holdfast.store.postgres.connections import Connection
from holdfast.store.postgres.hosts import HostRole, HostState
from holdfast.store.postgres.roles import GUARDED, ROLES, list_tables

OLDEST_SERVER = 140000
#: The share of a limit of connections that may be in use.
MOST_CONNECTIONS = 0.8
OLD_TRANSACTION = timedelta(minutes=5)
#: The rows of a temporary file of about 16 MB, the size of a WAL segment.
PROBE_ROWS = 1_200_000
#: The rows of a temporary file of about 1 MB, which a scrape can afford.
SMALL_PROBE_ROWS = 75_000
#: Connections to the server, to this database and of this user, each with its limit; -1 is no limit.
_CONNECTIONS = """
SELECT 'server', (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database),
    current_setting('max_connections')::int
UNION ALL
SELECT 'database', (SELECT numbackends FROM pg_stat_database WHERE datid = database.oid), datconnlimit
FROM pg_database AS database WHERE datname = current_database()
UNION ALL
SELECT 'user', (SELECT count(*)::int FROM pg_stat_activity WHERE usesysid = role.oid), rolconnlimit
FROM pg_roles AS role WHERE rolname = current_user
"""


def check_version(connection: Connection) -> HealthCheck:
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        return fail("server", f"PostgreSQL {version // 10000} is too old", "Upgrade to 14.")
    return ok("server", f"PostgreSQL {version // 10000}")


def check_hosts(states: list[HostState]) -> Iterator[HealthCheck]:
    """Report what each host of the URL is, and those that do not serve the store as they should."""
    if states:
        yield ok("hosts", ", ".join(f"{each.name} is {_ARTICLES[each.role]}{each.role}" for each in states))
    for each in states:
        if each.role is HostRole.FORMER_PRIMARY:
            text = f"{each.name} is a former primary and takes writes: programs that connect to it alone lose them"
            yield warn("hosts", text, FormerPrimary.hint)
        elif each.role is HostRole.UNREACHABLE:
            yield warn("hosts", f"{each.name} is out of reach: {each.error}", "Start it, or take it out of the URL.")


_ARTICLES = {
    HostRole.PRIMARY: "the ",
    HostRole.FORMER_PRIMARY: "a ",
    HostRole.STANDBY: "a ",
    HostRole.UNREACHABLE: "",
}


def check_privileges(connection: Connection, schema: str) -> HealthCheck:
    query = (
        "SELECT name FROM unnest(%s::text[]) AS name, format('%%I.%%I', %s::text, name) AS qualified"
        " WHERE NOT (has_table_privilege(qualified, 'SELECT') AND has_table_privilege(qualified, 'INSERT') AND"
        " has_table_privilege(qualified, 'UPDATE') AND has_table_privilege(qualified, 'DELETE')) ORDER BY name"
    )
    tables = [table for table in list_tables(connection, schema) if table not in GUARDED]
    missing = [name for (name,) in connection.execute(query, (tables, schema))]
    query = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND pg_has_role(oid, 'MEMBER') ORDER BY rolname"
    roles = connection.execute(query, ([f"{schema}_{role}" for role in ROLES],)).fetchall()
    if missing and roles:
        names = ", ".join(name for (name,) in roles)
        return ok("privileges", f"this user has the role {names}: it cannot run jobs")
    if missing:
        text = f"this user may not change {', '.join(missing)}"
        return warn("privileges", text, "Grant it the role of its work: see holdfast db roles.")
    return ok("privileges", "this user has all privileges of a worker")


def connection_use(connection: Connection) -> list[ConnectionUse]:
    """The connections in use, by limit. Every user sees them all."""
    rows = connection.execute(_CONNECTIONS).fetchall()
    return [ConnectionUse(scope, used, limit) for scope, used, limit in rows if limit > 0]


def check_connections(connection: Connection) -> Iterator[HealthCheck]:
    """Report limits of connections that are nearly reached, and commits that wait for a synchronous standby."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event = 'SyncRep' AND state_change < clock_timestamp() - interval '1 second'"
    )
    (waiting,) = connection.execute(query).fetchone() or (0,)
    uses = connection_use(connection)
    nearest = max(uses, key=lambda each: each.used / each.limit)
    if waiting:
        text = f"{waiting} connections wait for a synchronous standby: their transactions are not confirmed"
        yield warn("connections", text, "Bring the standby back, or change synchronous_standby_names.")
    elif nearest.used > MOST_CONNECTIONS * nearest.limit:
        text = f"{nearest.used} of the {nearest.scope}'s {nearest.limit} connections are in use"
        raising = _RAISE_LIMIT[nearest.scope]
        yield warn("connections", text, f"{raising}, use PgBouncer, or set connections=N in the URL.")
    else:
        yield ok("connections", f"{nearest.used} of {nearest.limit} in use")


_RAISE_LIMIT = {
    "server": "Raise max_connections",
    "database": "ALTER DATABASE … CONNECTION LIMIT",
    "user": "ALTER ROLE … CONNECTION LIMIT",
}


def is_disk_full(connection: Connection, rows: int = SMALL_PROBE_ROWS) -> bool:
    """Whether the server fails to write a temporary file of some *rows*. It needs no privilege, and leaves nothing."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL work_mem = '64kB'")
            connection.execute("SELECT count(*) FROM generate_series(1, %s)", (rows,))
    except errors.DiskFull:
        return True
    return False


def check_disk(connection: Connection) -> HealthCheck:
    """Try to write to the disk of the server: no function of PostgreSQL returns its free space."""
    try:
        full = is_disk_full(connection, PROBE_ROWS)
    except (errors.OperationalError, errors.ProgrammingError) as error:  # temp_file_limit, for example
        text = f"not checked: no temporary file can be written: {str(error).splitlines()[0]}"
        return warn("disk", text, "Watch the free space of the server with its own tools.")
    if full:
        return fail("disk", "the disk of the database is full: it cannot take 16 MB", StoreFull.hint)
    return ok("disk", "the server can write 16 MB; watch its free space with its own tools")


def check_vacuum(connection: Connection) -> Iterator[HealthCheck]:
    """Report what keeps vacuum from its work: it is off, or transactions stay open."""
    (on,) = connection.execute("SELECT current_setting('autovacuum')").fetchone() or ("on",)
    if on != "on":
        yield fail("vacuum", "autovacuum is off: claims become slower over time", "Set autovacuum = on.")
    (sees_all,) = connection.execute("SELECT pg_has_role('pg_read_all_stats', 'USAGE')").fetchone() or (False,)
    if not sees_all:
        user = connection.info.user
        text = f"not checked: database user {user} does not see the transactions and waits of other users"
        yield warn("vacuum", text, f"As a superuser: GRANT pg_monitor TO {user}.")
    query = (
        "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL"
        " AND xact_start < clock_timestamp() - %s ORDER BY xact_start LIMIT 3"
    )
    for pid, seconds in connection.execute(query, (OLD_TRANSACTION,)):
        text = f"a transaction of backend {pid} is open for {seconds:,} s: vacuum cannot do its work"
        yield warn("vacuum", text, f"Find out what it does, or SELECT pg_terminate_backend({pid}).")
