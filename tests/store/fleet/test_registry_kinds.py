"""Kinds: one test per promise of store/fleet/registry.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.access.masking import SecretField
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.retention import Retention
from holdfast.domain.schedules.definition import Definition
from holdfast.errors import Conflict, NotFound, UnknownKind
from holdfast.store.engine import sql
from holdfast.store.engine.operation import query, to_micros
from holdfast.store.postgres.statements import Statements
from tests.support.jobs import prune, put


def published(name="mail", **options):
    def handler(n: int = 0) -> None: ...

    return Kind(name, handler, KindOptions(**options)).published()


def test_kinds_are_published_for_all(make_store):
    """Another process knows their defaults; a second publication renews them."""
    make_store().kinds.publish([published(queue="a"), published("import")])
    make_store().kinds.publish([published(queue="b", version=2)])
    kinds = make_store().kinds
    assert kinds.names() == ["import", "mail"]
    assert kinds.options("mail") == KindOptions(queue="b", version=2)
    assert '"n"' in kinds.get("mail").payload_schema


def test_an_older_version_never_replaces_a_newer_one(make_store):
    """K13: of two versions that run side by side, the newer one is published; of equal ones the later."""
    new, old = make_store().kinds, make_store().kinds
    new.publish([published(queue="new", version=2)])
    old.publish([published(queue="old", version=1)])
    assert new.options("mail") == KindOptions(queue="new", version=2)
    old.publish([published(queue="later", version=2)])
    assert new.options("mail").queue == "later"


def test_an_unknown_kind_is_an_error_with_a_suggestion(store):
    """A typing mistake is found at once."""
    store.kinds.publish([published()])
    with pytest.raises(UnknownKind) as caught:
        store.kinds.get("mial")
    assert "'mail'" in caught.value.hint


def test_declared_secrets_are_read_once_for_some_seconds(store, monkeypatch):
    """Views mask with them, and each of many rows needs them."""
    store.kinds.publish([published(secrets=("n",))])
    assert store.views.declared_secrets() == {"mail": ("n",)}
    store.kinds.publish([published("import")])
    assert store.views.declared_secrets() == {"mail": ("n",)}
    monkeypatch.setattr("holdfast.store.jobs.queries.SECRETS_CACHE_S", -1.0)
    assert store.views.declared_secrets() == {"mail": ("n",)}
    assert store.views.kind_names() == ["import", "mail"]


@pytest.mark.parametrize(
    "publications",
    [
        [{"secrets": ("n",)}, {}],
        [{}, {"secrets": ("n",)}, {}],
        [{"secrets": ("n",), "version": 2}, {"version": 1}, {"version": 2}],
        [{"version": 2}, {"secrets": ("n",), "version": 1}],
        [{"secrets": ("m",)}, {"secrets": ("n",)}, {"secrets": ("k",)}],
    ],
)
def test_a_field_that_was_secret_once_stays_secret(make_store, publications):
    """W2: an older release, a newer one or another application publishes the kind; each process opens the store anew."""
    for options in publications:
        make_store().kinds.publish([published(**options)])
    assert "n" in make_store().views.declared_secrets().get("mail", ()), "E10 is broken: views show a secret"


def test_a_deleted_kind_keeps_its_secrets(make_store, clock):
    """W2: its finished jobs may stay longer, and it may be published again."""
    store = make_store()
    store.kinds.publish([published(secrets=("n",))])
    clock.advance(days=400)
    assert prune(store, "kinds") == 1
    assert store.kinds.names() == []
    store.kinds.publish([published()])
    assert make_store().views.declared_secrets() == {"mail": ("n",)}


def test_a_secret_field_is_shown_again_once_no_code_declares_it(store):
    """W2: an admin removes what was declared by mistake."""
    store.kinds.publish([published(secrets=("n",))])
    with pytest.raises(Conflict, match="declares 'n' as secret"):
        store.kinds.reveal("mail", "n")
    store.kinds.publish([published()])
    assert store.kinds.secret_fields() == [SecretField("mail", "n")]
    store.kinds.reveal("mail", "n")
    assert store.views.declared_secrets() == {}
    with pytest.raises(NotFound, match="no secret field"):
        store.kinds.reveal("mail", "n")


def test_kinds_that_nobody_publishes_go(store, clock):
    """G4: kinds that are made at run time. A live job, a live worker, a schedule and a new start keep a kind."""
    names = ["gone", "queued", "scheduled", "served", "started"]
    store.kinds.publish([published(name) for name in names])
    put(store, kind="queued", hold=True)
    store.schedules.create("nightly", Definition(kind="scheduled", cron="0 0 * * *"), actor="ada")
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["served"])
    clock.advance(days=89)
    store.workers.heartbeat(WorkerId("w"))
    store.kinds.publish([published("started")])
    assert prune(store, "kinds") == 0
    clock.advance(days=2)
    assert prune(store, "kinds", retention=Retention(kinds=timedelta(0))) == 0
    assert prune(store, "kinds") == 1, "G4 is broken"
    assert store.kinds.names() == names[1:]


def test_a_search_for_retired_kinds_reads_each_table_once(store, database, clock):
    """300 retired kinds, each with a held job behind 100,000 others, took 15 s a minute: each read the jobs anew."""
    names = [f"retired-{n}" for n in range(30)]
    store.kinds.publish([published(name) for name in names])
    for name in names:
        put(store, kind=name, hold=True)
    clock.advance(days=91)
    assert prune(store, "kinds") == 0
    search = query("prune_kinds", age=timedelta(days=90), limit=1000)
    if database.name == "sqlite":
        values = {"now": to_micros(clock.now()), "age": to_micros(timedelta(days=90)), "limit": 1000}
        lines = database.execute(f"EXPLAIN QUERY PLAN {sql.statement('sqlite', search.name)}", values)
        assert not [line for *_, line in lines if "CORRELATED" in line], "K93 is broken"
    else:
        text = Statements("holdfast").text(search).decode()
        (((plan,),),) = database.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", search.parameters)
        scans = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") in ("live", "worker", "schedule")]
        assert len(scans) == 3
        assert [node for node in scans if node["Actual Loops"] > 1] == [], "K93 is broken"


def _nodes(node):
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def test_an_unchanged_kind_is_published_once_a_day(store, database, clock):
    """Retention sees when an application started last; more starts write nothing."""
    published_at = "SELECT published_at FROM holdfast.kind"
    store.kinds.publish([published()])
    first = database.execute(published_at)
    clock.advance(hours=23)
    store.kinds.publish([published()])
    assert database.execute(published_at) == first
    clock.advance(hours=2)
    store.kinds.publish([published()])
    assert database.execute(published_at) != first
