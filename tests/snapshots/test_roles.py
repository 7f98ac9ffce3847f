"""Every database role and every statement and SQL function: allowed or refused, as PostgreSQL itself decides."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg import errors

from holdfast.store.engine import sql
from holdfast.store.postgres.roles import PRIVATE, ROLES
from tests.snapshots.files import check
from tests.support.backends import open_database

#: The roles that may touch tokens, sessions and the secrets of the server.
TRUSTED = {"dashboard", "admin"}
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM) holdfast\.")
_PARAMETER = re.compile(r"(?<![:\w]):[a-z_]+(?:\.[a-z_]+)?")
_UNTYPED = re.compile(_PARAMETER.pattern + r"\b(?!::|\.)")
_LOCKS = re.compile(r"\bFOR (NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)\b")
_SECRETS = re.compile(rf"\bholdfast\.({'|'.join(set(PRIVATE) - {'idempotency_key'})})\b")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_database("postgres", tmp_path_factory.mktemp("roles"), real_time=True) as database:
        store = database.open()
        store.database.tools.apply(store.database.tools.roles())
        yield store


@pytest.fixture(scope="module")
def allowed(store):
    """The roles that may execute each statement: EXPLAIN checks the privileges and runs nothing."""
    found = {}
    for role in ROLES:
        with psycopg.connect(store.backend.url, autocommit=True) as connection:
            connection.execute(f"SET ROLE holdfast_{role}".encode())
            for name, text in statements().items():
                roles = found.setdefault(name, [])
                if _may_explain(connection, text):
                    roles.append(role)
    return found


def statements():
    known = sql.statements("postgres")
    return {
        name: text
        for name, text in known.items()
        if text.startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "("))
    }


def _may_explain(connection, text):
    text = re.sub(r"(?<!')\{\w+\}", "true", text)  # conditions that the caller fills in
    for value in ("NULL", "NULL::interval"):  # some statements subtract a parameter from a time
        try:
            connection.execute(b"EXPLAIN " + _PARAMETER.sub("NULL", _UNTYPED.sub(value, text)).encode())
        except errors.InsufficientPrivilege:
            return False
        except errors.UndefinedFunction:
            continue
        return True
    raise AssertionError(f"PostgreSQL does not understand {text}")


def test_statements(allowed):
    """A change of privileges, or a new statement, changes this file: review who may execute it."""
    lines = [f"{name}: {' '.join(allowed[name]) or 'the owner'}\n" for name in sorted(allowed)]
    check("roles", "statements", "".join(lines))


def test_functions(store):
    """All are SECURITY INVOKER: what they do is limited by the privileges on tables.

    Five run with the owner's rights, and a trigger that keeps secret fields. They get numbers and intervals, and have a
    fixed search path, in which temporary tables and types of the caller come last. Few roles may execute four of them.
    Only the owner of a table may create and drop its partitions; and who may set the sequence of ids could give ids out
    again. Who prunes revoked tokens does not reach valid ones. A producer reads a job of its own login, and no other. The
    fifth is for all: every new session begins the timeline, without a choice.
    """
    query = """SELECT format('%I(%s)', proname, pg_get_function_identity_arguments(oid)),
            prosecdef AND NOT (
                proname IN ('draw_job_ids', 'maintain_ranges', 'prune_credentials', 'begin_timeline',
                        'keep_secret_fields', 'own_job')
                AND 'search_path=pg_catalog, pg_temp' = ANY(proconfig)), oid
        FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace ORDER BY 1"""
    lines = []
    with psycopg.connect(store.backend.url, autocommit=True) as connection:
        for name, definer, oid in connection.execute(query).fetchall():
            assert not definer, name
            right = "SELECT has_function_privilege(%s, %s::oid, 'EXECUTE')"
            roles = [role for role in ROLES if connection.execute(right, (f"holdfast_{role}", oid)).fetchone()[0]]
            lines.append(f"{name}: {'all' if roles == list(ROLES) else ' '.join(roles)}\n")
    check("roles", "functions", "".join(lines))


def test_the_rules_behind_the_matrix(allowed):
    """A reader changes nothing, and secrets are for the dashboard and the admin alone (docs/reference/roles.md)."""
    texts = statements()
    for name, roles in allowed.items():
        if _WRITES.search(texts[name]) or _LOCKS.search(texts[name]):
            assert "reader" not in roles, f"a reader may execute {name}"
        if _SECRETS.search(texts[name]):
            assert set(roles) <= TRUSTED, f"{name} touches secrets, and {roles} may execute it"


@pytest.mark.parametrize("table", ["credential", "session", "secret"])
@pytest.mark.parametrize("role", [role for role in ROLES if role not in TRUSTED])
def test_credentials_are_out_of_reach(store, role, table):
    """E10.4: no privilege on any column, neither to read nor to write."""
    with psycopg.connect(store.backend.url) as connection:
        for privilege in ("SELECT", "INSERT", "UPDATE", "REFERENCES"):
            query = "SELECT has_any_column_privilege(%s, %s, %s)"
            row = connection.execute(query, (f"holdfast_{role}", f"holdfast.{table}", privilege)).fetchone()
            assert row == (False,), f"{role} may {privilege} {table}"
        for privilege in ("DELETE", "TRUNCATE", "TRIGGER"):
            query = "SELECT has_table_privilege(%s, %s, %s)"
            row = connection.execute(query, (f"holdfast_{role}", f"holdfast.{table}", privilege)).fetchone()
            assert row == (False,), f"{role} may {privilege} {table}"
