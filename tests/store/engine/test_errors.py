"""Bad surroundings: each has its own error with code and hint, and nothing is half-written."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.admin.doctor.checks import examine
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import (
    ConfigurationError,
    NetworkFileSystem,
    NotAStore,
    SchemaMissing,
    ServerReadOnly,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownScheme,
)
from holdfast.settings import user_data
from holdfast.store import Store, open_store
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.store.sqlite.files import refuse_network_file_system
from tests.chaos.sites import fill_disk, small_disk
from tests.support.backends import available, open_database, postgres_url
from tests.support.jobs import claim_jobs, put, states

POSTGRES = [name for name in available() if name != "sqlite"]


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgres+psycopg", "postgresql+asyncpg"])
def test_a_url_of_sqlalchemy_opens_the_same_store(tmp_path, scheme):
    """E8: the driver makes no difference."""
    with open_database("postgres", tmp_path) as database, closing(open_store(database.url)) as store:
        job_id = put(store)
        with closing(open_store(f"{scheme}:{database.url.partition(':')[2]}", create=False)) as same:
            assert same.views.get(job_id).id == job_id


@pytest.mark.parametrize("url", ["mysql://h/db", "mysql+psycopg://h/db", "jobs.db", "", "http://h"])
def test_an_unknown_scheme_is_refused(url):
    """The hint shows the URLs that there are."""
    with pytest.raises(UnknownScheme) as caught:
        open_store(url)
    assert (caught.value.code, caught.value.exit_code) == ("E_UNKNOWN_SCHEME", 4)
    assert "sqlite:///" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://host/x.db",
        "sqlite:///x.db?durability=low",
        "sqlite:///x.db?nope=1",
        "postgresql://h/d?prepare=maybe",
        "postgresql://h/d?schema=a'b",
        "postgresql://h/d?schema=",
        "sqlite:///x#y.db",
        "sqlite:///x%00.db",
    ],
)
def test_a_url_that_makes_no_sense_is_refused(url):
    """Before anything is opened."""
    with pytest.raises(ConfigurationError):
        open_store(url)


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    """Its content stays as it was."""
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ada, " * 200)
    with pytest.raises(NotAStore) as caught:
        open_store(f"sqlite:///{file}")
    assert caught.value.code == "E_NOT_A_STORE"
    assert file.read_text() == "Dear Ada, " * 200


def test_the_store_may_live_in_the_users_own_file(tmp_path):
    """Its tables are prefixed and harm no other."""
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE job (n)")
        connection.execute("INSERT INTO job VALUES (1)")
    connection.close()
    store = open_store(f"sqlite:///{path}")
    put(store)
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT n FROM job").fetchall() == [(1,)]
    connection.close()


def test_files_are_private_to_the_user(tmp_path, monkeypatch):
    """The database, its log and its directory, whatever the umask."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "new"))
    folder = user_data(os.environ)
    assert folder.parent == tmp_path / "new"
    old = os.umask(0)
    try:
        store = open_store(f"sqlite:///{folder}/jobs.db")
        put(store)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        store.close()
    finally:
        os.umask(old)
    assert modes["jobs.db"] == modes["jobs.db-wal"] == 0o600
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_full_disk_writes_nothing_by_halves(tmp_path):
    """The call fails with its own error; when there is room again it works."""
    backend = SqliteBackend(tmp_path / "jobs.db")
    store = Store(backend)
    put(store)
    writer = backend._writer.connection
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreFull) as caught:
        store.jobs.enqueue_many([NewJob(kind="mail", payload=f'{{"x":"{"y" * 1000}"}}') for _ in range(100)])
    assert (caught.value.code, caught.value.exit_code, caught.value.retryable) == ("E_STORE_FULL", 5, True)
    assert len(states(store)) == 1
    writer.execute("PRAGMA max_page_count = 1000000")
    put(store)
    assert len(states(store)) == 2
    assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()


FULL = """
import sys
import holdfast
from holdfast.store import open_store
from holdfast.domain.jobs.new_job import NewJob
try:
    store = open_store(sys.argv[1])
    store.jobs.enqueue_many([NewJob(kind="mail", payload='{"x": "%s"}' % ("y" * 1000))] * 1000)
except holdfast.HoldfastError as error:
    print(error.code, error.exit_code, error.retryable)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_full_disk_has_its_own_error_however_sqlite_words_it(tmp_path, fresh):
    """O9: "disk I/O error. Is the database running?"; doctor said so too, and printed no line about the disk."""
    with small_disk(8) as disk:
        url = f"sqlite:///{disk}/jobs.db"
        if not fresh:
            store = open_store(url)
            put(store)
            store.close()
        filling = fill_disk(disk)
        done = subprocess.run([sys.executable, "-c", FULL, url], capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["E_STORE_FULL", "5", "True"], f"O9 is broken: {done.stdout}{done.stderr}"
        checks = [check for check in examine(lambda: open_store(url)) if check.level is Level.FAIL]
        assert checks
        assert all("is full" in check.message or "No space left" in check.message for check in checks)
        assert all(check.fix == StoreFull.hint for check in checks)
        filling.unlink()
        with closing(open_store(url)) as store:
            put(store)


READ_ONLY = """
import os, sys
import holdfast, holdfast.store.sqlite.backend
from holdfast.store import open_store
from holdfast.domain.jobs.new_job import NewJob
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    store = open_store(sys.argv[1])
    store.jobs.enqueue(NewJob(kind="mail"))
except holdfast.HoldfastError as error:
    print(error.code, error.exit_code, bool(error.hint))
"""


def test_a_read_only_file_has_its_own_error(tmp_path):
    """Root may write everywhere, so another user tries."""
    folder = tmp_path / "store"
    folder.mkdir()
    store = open_store(f"sqlite:///{folder}/jobs.db")
    put(store)
    store.close()
    (folder / "jobs.db").chmod(0o444)
    folder.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, f"sqlite:///{folder}/jobs.db"], capture_output=True, text=True, check=False
    )
    folder.chmod(0o755)
    assert done.stdout.split() == ["E_STORE_READ_ONLY", "4", "True"], done.stderr


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    """A file stands where the directory should be."""
    (tmp_path / "file").write_text("x")
    with pytest.raises((StoreReadOnly, StoreUnavailable)):
        open_store(f"sqlite:///{tmp_path}/file/jobs.db")


@pytest.mark.parametrize(("kind", "refused"), [("nfs4", True), ("cifs", True), ("ext4", False)])
def test_network_file_systems_are_refused(kind, refused):
    """SQLite's locks do not hold there."""
    mounts = f"/dev/a / ext4 rw 0 0\nserver:/x /mnt/my\\040share {kind} rw 0 0\n"
    path = Path("/mnt/my share/jobs.db")
    if refused:
        with pytest.raises(NetworkFileSystem):
            refuse_network_file_system(path, mounts=mounts)
    else:
        refuse_network_file_system(path, mounts=mounts)


def test_a_locked_store_says_so(tmp_path):
    """Another process that never ends its transaction is named as the cause."""
    backend = SqliteBackend(tmp_path / "jobs.db", busy_timeout=0.05)
    blocker = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        put(Store(backend))
    assert caught.value.retryable
    blocker.execute("ROLLBACK")
    put(Store(backend))
    blocker.close()
    backend.close()


def test_a_closed_store_says_so(tmp_path):
    """And closing twice is closing once."""
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        put(store)


def test_one_bad_write_spoils_no_other_in_its_group(tmp_path):
    """Writers that are committed together fail alone."""
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.domain.jobs.new_job import OnConflict, Unique
    from holdfast.errors import DuplicateJob

    store = open_store(f"sqlite:///{tmp_path}/jobs.db?durability=fast")
    put(store, unique=Unique("k"))

    def work(n: int) -> bool:
        if n % 3:
            put(store)
            return True
        with pytest.raises(DuplicateJob):
            put(store, unique=Unique("k"), on_conflict=OnConflict.RAISE)
        return False

    with ThreadPoolExecutor(16) as pool:
        good = sum(pool.map(work, range(300)))
    assert len(states(store)) == 1 + good
    store.close()


# -- PostgreSQL -----------------------------------------------------------------------------


@pytest.fixture(params=POSTGRES)
def postgres(request, tmp_path):
    with open_database(request.param, tmp_path) as database:
        yield database


def test_a_server_that_does_not_answer(tmp_path):
    """At once, not after a minute, and with the reason."""
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"postgresql://nobody@/none?host={tmp_path}")
    assert (caught.value.code, caught.value.exit_code) == ("E_STORE_UNAVAILABLE", 5)


def test_a_database_that_does_not_exist(postgres):
    """It said that the same call may succeed later."""
    url = re.sub(r"/[^/?]*\?", "/no_such_db?", postgres.url, count=1)
    with pytest.raises(StoreUnavailable, match="the database no_such_db does not exist") as caught:
        open_store(url)
    assert "createdb no_such_db" in caught.value.hint


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("disk_full", StoreFull),
        ("read_only_sql_transaction", ServerReadOnly),
        ("insufficient_privilege", StoreReadOnly),
    ],
)
def test_the_servers_own_failures(postgres, state, error):
    """A full disk, a read-only standby and missing privileges have errors of their own."""
    store = postgres.open()
    postgres.execute(
        f"CREATE FUNCTION holdfast.fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"'BEGIN RAISE EXCEPTION USING ERRCODE = ''{state}'', MESSAGE = ''no''; END'"
    )
    postgres.execute("CREATE TRIGGER fail BEFORE INSERT ON holdfast.live EXECUTE FUNCTION holdfast.fail()")
    try:
        for call in (lambda: put(store), lambda: store.jobs.enqueue_many([NewJob(kind="mail")])):
            with pytest.raises(error):
                call()
    finally:
        postgres.execute("DROP FUNCTION holdfast.fail CASCADE")
    assert states(store) == {}


def test_a_role_that_may_not_set_up_is_told(postgres):
    """The schema is missing, and this role cannot make it."""
    postgres.execute("DROP ROLE IF EXISTS holdfast_guest")
    postgres.execute("CREATE ROLE holdfast_guest LOGIN")
    url = postgres.url.replace("postgres@", "holdfast_guest@")
    try:
        with pytest.raises(SchemaMissing) as caught:
            open_store(f"{url}&schema=elsewhere")
        assert "owner" in caught.value.hint
    finally:
        postgres.execute("DROP ROLE holdfast_guest")


def test_another_schema_is_another_store(postgres):
    """Its name is part of the URL."""
    store = open_store(f"{postgres.url}&schema=Elsewhere_2")
    try:
        assert put(store) == 1
        assert states(postgres.open()) == {}
        store.jobs.enqueue_many([NewJob(kind="mail")])
        assert len(states(store)) == 2
    finally:
        store.close()
        postgres.execute('DROP SCHEMA "Elsewhere_2" CASCADE')


def test_without_prepared_statements_everything_works(postgres):
    """For PgBouncer in transaction mode."""
    store = open_store(f"{postgres.url}&prepare=off")
    for _ in range(10):
        put(store)
    assert len(states(store)) == 10
    store.close()


def test_a_database_that_is_gone_later(tmp_path):
    """A call after the server has gone fails with a retryable error, and works again when it is back."""
    from tests.support.postgres import QUICK, bundled_programs, running

    with running(bundled_programs(), settings=QUICK) as server:
        store = open_store(server.url())
        put(store)
        server.stop("immediate")
        with pytest.raises(StoreUnavailable) as caught:
            put(store)
        assert caught.value.retryable
        server.start()
        put(store)
        assert len(states(store)) == 2
        store.close()


def test_postgres_urls_are_those_of_libpq():
    """Both names of the scheme lead to the same store."""
    url = postgres_url("postgres")
    store = open_store(url.replace("postgresql://", "postgres://"))
    assert store.backend.name == "postgres"
    store.close()


def test_a_bad_value_of_one_thread_spoils_no_other(tmp_path):
    """Whatever goes wrong inside a request stays there."""
    from concurrent.futures import ThreadPoolExecutor

    store = open_store(f"sqlite:///{tmp_path}/jobs.db?durability=fast")
    put(store)
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["mail"])

    def work(n: int) -> None:
        if n % 2:
            put(store)
            return
        with pytest.raises(OverflowError):
            store.leases.report(lease, done=2**70)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(200)))
    assert len(states(store)) == 101
    store.close()


def test_a_closed_store_does_not_read_either(tmp_path):
    """No connection is opened behind its back."""
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.close()
    with pytest.raises(StoreUnavailable):
        states(store)


def test_a_deleted_file_is_noticed(tmp_path):
    """Nothing is acknowledged that nobody could ever read."""
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    put(store)
    store.views.get(1)
    (tmp_path / "jobs.db").unlink()
    with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
        store.views.get(1)
    with pytest.raises(StoreUnavailable, match="deleted"):
        put(store)
    store.close()


def test_the_log_does_not_grow_for_ever(tmp_path):
    """Short-lived processes leave it to nobody: each checkpoints what it wrote when it closes."""
    keeper = open_store(f"sqlite:///{tmp_path}/jobs.db")
    sizes = []
    for _ in range(4):
        store = open_store(f"sqlite:///{tmp_path}/jobs.db")
        store.jobs.enqueue_many([NewJob(kind="mail", payload=f'{{"x":"{"y" * 500}"}}') for _ in range(1000)])
        store.close()
        sizes.append((tmp_path / "jobs.db-wal").stat().st_size)
    keeper.close()
    assert sizes[-1] < 2 * sizes[0]


def test_many_who_write_little_do_not_fill_the_disk_with_their_log(tmp_path):
    """None of them writes enough to think of it by itself, and none comes to its end: they look at the log's size."""
    stores = [open_store(f"sqlite:///{tmp_path}/jobs.db") for _ in range(4)]
    large = f'{{"x":"{"y" * 200_000}"}}'
    for n in range(400):
        stores[n % 4].jobs.enqueue(NewJob(kind="mail", payload=large))
    size = (tmp_path / "jobs.db-wal").stat().st_size
    for store in stores:
        store.close()
    assert size < 32 * 1024 * 1024  # of eighty that were written


def test_what_the_database_cannot_keep_is_an_error_of_ours(postgres):
    """Not one of the driver's."""
    from holdfast.errors import InvalidInput

    store = postgres.open()
    (answer,) = store.jobs.enqueue_many([NewJob(kind="mail")])
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["mail"])
    with pytest.raises(InvalidInput):
        store.leases.report(lease, done=2**70)
    assert answer.created
