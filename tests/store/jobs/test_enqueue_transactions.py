"""Enqueueing in the caller's own transaction: the job exists if and only if it commits (J2)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm

import holdfast
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.errors import InvalidInput, NoTransaction, OtherDatabase
from tests.support.jobs import put, states


@pytest.fixture
def app(database):
    """An app on the test's database, and a table of the user's own."""
    with holdfast.Holdfast(database.url) as app:
        app.store  # noqa: B018 - opened before the caller's transaction begins
        database.execute("CREATE TABLE IF NOT EXISTS orders (n integer)")
        database.execute("DELETE FROM orders")
        yield app


@pytest.fixture
def ship(app):
    @app.job()
    def ship(n: int) -> None: ...

    return ship


@pytest.fixture
def connect(database):
    """Opens the driver's own connection."""
    opened = []

    def connect(**options):
        if database.name == "sqlite":
            connection = sqlite3.connect(database.path, **options)
        else:
            import psycopg

            connection = psycopg.connect(database.url, **options)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


def alchemy_url(database) -> str:
    if database.name == "sqlite":
        return f"sqlite:///{database.path}"
    return database.url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def engine(database):
    engine = sqlalchemy.create_engine(alchemy_url(database), poolclass=sqlalchemy.pool.NullPool)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("commit", [True, False])
def test_a_driver_connection(database, store, ship, connect, commit):
    """sqlite3 or psycopg: the order and its job are kept together, or neither."""
    connection = connect()
    connection.execute("INSERT INTO orders VALUES (1)")
    ref = ship.options(connection=connection).enqueue(n=1)
    assert states(store) == {}
    connection.commit() if commit else connection.rollback()
    assert list(states(store)) == ([ref.id] if commit else [])
    assert len(database.execute("SELECT * FROM orders")) == int(commit)


@pytest.mark.parametrize("commit", [True, False])
def test_many_with_keys_and_needs(store, ship, connect, commit):
    """Everything that an enqueue can do, it can do in the caller's transaction."""
    first = put(store, kind="ship", unique=Unique("k"))
    connection = connect()
    refs = ship.options(connection=connection, key="k").enqueue_many([{"n": 1}])
    later = ship.options(connection=connection, after=first).enqueue(n=2)
    connection.commit() if commit else connection.rollback()
    assert refs[0].id == first
    assert not refs[0].created
    assert (later.id in states(store)) is commit


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_sqlalchemy_connection(store, ship, engine, commit, first):
    """The job follows SQLAlchemy's transaction, also when the enqueue is its first statement."""
    with engine.connect() as connection:
        if not first:
            connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        ref = ship.options(connection=connection).enqueue(n=1)
        connection.commit() if commit else connection.rollback()
    assert (ref.id in states(store)) is commit


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_sqlalchemy_session(store, ship, engine, commit, first):
    """And its session's."""
    with sqlalchemy.orm.Session(engine) as session:
        if not first:
            session.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        ref = ship.options(connection=session).enqueue(n=1)
        session.commit() if commit else session.rollback()
    assert (ref.id in states(store)) is commit


@pytest.mark.parametrize("commit", [True, False])
def test_an_async_connection(database, store, ship, commit):
    """psycopg's async connection; on SQLite an async caller has a plain one."""

    async def enqueue():
        if database.name == "sqlite":
            with closing(sqlite3.connect(database.path)) as connection:
                ref = await ship.options(connection=connection).aenqueue(n=1)
                connection.commit() if commit else connection.rollback()
                return ref
        import psycopg

        async with await psycopg.AsyncConnection.connect(database.url) as connection:
            refs = await ship.options(connection=connection).aenqueue_many([{"n": 1}, {"n": 2}])
            await (connection.commit() if commit else connection.rollback())
            return refs[0]

    ref = asyncio.run(enqueue())
    assert (ref.id in states(store)) is commit


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("with_session", [True, False])
def test_async_sqlalchemy(backend_name, database, store, ship, commit, with_session):
    """Its connections and sessions on PostgreSQL (SQLite has no async driver of its own)."""
    if backend_name == "sqlite":
        with pytest.raises(InvalidInput, match="async"):
            ship.options(connection=sqlalchemy.ext.asyncio.AsyncSession()).enqueue(n=1)
        return

    async def enqueue():
        engine = sqlalchemy.ext.asyncio.create_async_engine(alchemy_url(database), poolclass=sqlalchemy.pool.NullPool)
        opened = sqlalchemy.ext.asyncio.AsyncSession(engine) if with_session else engine.connect()
        async with opened as connection:
            ref = await ship.options(connection=connection).aenqueue(n=1)
            await (connection.commit() if commit else connection.rollback())
        await engine.dispose()
        return ref

    ref = asyncio.run(enqueue())
    assert (ref.id in states(store)) is commit


def test_a_connection_to_another_database_is_refused(database, ship, tmp_path):
    """Or the job would be lost in a place that no worker reads."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (n)")
        with pytest.raises(OtherDatabase) as caught:
            ship.options(connection=connection).enqueue(n=1)
    assert caught.value.code == "E_OTHER_DATABASE"


def test_another_installation_is_refused(database, ship, tmp_path):
    """A store, but not the app's."""
    from holdfast.store.sqlite.backend import SqliteBackend

    SqliteBackend(tmp_path / "other.db").close()
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, pytest.raises(OtherDatabase):
        ship.options(connection=connection).enqueue(n=1)


def test_what_is_no_connection_is_refused(ship):
    """Anything at all."""
    with pytest.raises(OtherDatabase):
        ship.options(connection="sqlite:///jobs.db").enqueue(n=1)


def test_an_autocommit_connection_is_refused(database, store, ship, connect):
    """It would commit at once, which is not what the caller asked for."""
    options = {"isolation_level": None} if database.name == "sqlite" else {"autocommit": True}
    connection = connect(**options)
    with pytest.raises(NoTransaction):
        ship.options(connection=connection).enqueue(n=1)
    connection.execute("BEGIN")
    ref = ship.options(connection=connection).enqueue(n=1)
    connection.execute("COMMIT")
    assert ref.id in states(store)


def test_kinds_are_published_beside_the_callers_transaction(database, connect, app):
    """A second writer on SQLite would wait for the caller's lock for ever; there is none."""

    @app.job()
    def unpublished() -> None: ...

    connection = connect()
    connection.execute("INSERT INTO orders VALUES (1)")
    unpublished.options(connection=connection).enqueue()
    connection.commit()
    assert "unpublished" in app.store.kinds.names()


def test_an_error_in_the_callers_transaction_is_theirs_to_handle(store, ship, connect):
    """A refused enqueue leaves the connection usable."""
    connection = connect()
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(holdfast.HoldfastError):
        ship.options(connection=connection, after=999).enqueue(n=1)
    ship.options(connection=connection).enqueue(n=2)
    connection.commit()
    assert len(states(store)) == 1


def test_a_rolled_back_transaction_frees_its_key(make_store, ship, connect):
    """The next one gets the key; nobody is told of a job that never came to be."""
    connection = connect()
    ship.options(connection=connection, key="k").enqueue(n=1)
    connection.rollback()
    answer = make_store().jobs.enqueue(NewJob(kind="ship", unique=Unique("k")))
    assert answer.created


def test_a_refused_enqueue_leaves_no_key_behind(store, ship, connect):
    """The caller may catch the error and commit: the key is still free (a savepoint)."""
    connection = connect()
    with pytest.raises(holdfast.HoldfastError):
        ship.options(connection=connection, key="pay-1", key_for="ever", after=999).enqueue(n=1)
    connection.commit()
    assert ship.options(key="pay-1", key_for="ever").enqueue(n=1).created


def test_an_async_refusal_leaves_no_key_behind_either(database, store, ship):
    """The same on psycopg's async connection."""
    if database.name == "sqlite":
        return

    async def enqueue():
        import psycopg

        async with await psycopg.AsyncConnection.connect(database.url) as connection:
            with pytest.raises(holdfast.HoldfastError):
                await ship.options(connection=connection, key="k", after=999).aenqueue(n=1)

    asyncio.run(enqueue())
    assert ship.options(key="k").enqueue(n=1).created


def test_the_callers_row_factory_is_left_alone(database, store, ship, connect):
    """A connection that gives dictionaries serves as well."""
    connection = connect()
    if database.name == "sqlite":
        connection.row_factory = lambda cursor, row: dict(zip([c[0] for c in cursor.description], row, strict=True))
    else:
        from psycopg.rows import dict_row

        connection.row_factory = dict_row
    ref = ship.options(connection=connection).enqueue(n=1)
    connection.commit()
    assert ref.id in states(store)


def test_callers_on_one_sqlite_file_wait_for_each_other(tmp_path):
    """A transaction that read first could not become a writer later; so it begins as one."""
    from concurrent.futures import ThreadPoolExecutor

    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/jobs.db?durability=fast")

    @app.job()
    def ship(n: int) -> None: ...

    app.store  # noqa: B018 - opened before the race

    def work(n: int) -> None:
        for _ in range(20):
            with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=30)) as connection:
                ship.options(connection=connection).enqueue(n=n)
                connection.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(states(app.store)) == 80
    app.close()
