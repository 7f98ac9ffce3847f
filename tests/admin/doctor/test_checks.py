"""The doctor: every finding has its fix."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import Selector
from holdfast.admin.doctor import checks as doctor
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.verdict import Failed
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap
from holdfast.store import open_store
from holdfast.store.engine.operation import query
from holdfast.store.schedules.fired_plans import Advance
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.support.backends import open_database
from tests.support.jobs import lapse, put, take_one


def messages(checks, level=Level.WARN):
    """The messages of one level by the name of the check. Each has a fix."""
    chosen = [check for check in checks if check.level is level]
    assert all(check.fix for check in chosen)
    return {check.name: check.message for check in chosen}


def alive(store, name="w", queues=("default",), kinds=("mail",), version=None):
    store.workers.announce(WorkerId(name), host="h", pid=1, queues=[*queues], kinds=[*kinds], version=version)


def test_a_good_environment_is_in_order():
    assert {check.level for check in doctor.environment()} == {Level.OK}


def test_the_enforcer_of_caps(monkeypatch):
    (check,) = doctor.caps()
    assert check.level is Level.OK
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    assert "only polled" in messages(doctor.caps())["caps"]


def test_an_empty_store_is_in_order(store):
    checks = list(doctor.check_store(store))
    assert {check.level for check in checks} == {Level.OK}
    assert checks[0].name == "store"


def test_unknown_variables():
    """Kubernetes sets HOLDFAST_PORT for a service of that name: a warning, not a failure."""
    environ = {"HOLDFAST_SLOT": "3", "HOLDFAST_SLOTS": "3", "HOLDFAST_API_KEY": "x"}
    assert messages(doctor.configuration(environ)) == {"configuration": "unknown variable HOLDFAST_SLOT"}


def test_a_broken_configuration():
    assert "HOLDFAST_SLOTS" in messages(doctor.configuration({"HOLDFAST_SLOTS": "many"}), Level.FAIL)["configuration"]


def test_a_store_that_cannot_be_opened(tmp_path):
    checks = list(doctor.examine(lambda: open_store(f"postgresql://nobody@/none?host={tmp_path}")))
    assert checks[-1].name == "store"
    assert checks[-1].level is Level.FAIL


def test_a_paused_queue(store):
    store.queues.pause("default", note="deploy, token=abcd")
    assert messages(doctor.check_store(store))["queue"] == "'default' is paused: deploy, token=***"


def test_expired_leases_and_dead_jobs(store, clock):
    put(store)
    put(store)
    store.leases.settle(take_one(store), Failed(error="x", permanent=True))
    take_one(store)
    lapse(clock)
    warnings = messages(doctor.check_store(store))
    assert warnings["leases"].startswith("1 lease of 'default' has expired")
    assert warnings["dead jobs"].startswith("1 job is dead; the newest is job")
    store.control.retry(Selector(), actor="ada")


def make(store, name, kind="mail"):
    return store.schedules.create(name, Definition(kind=kind, cron="@hourly"), actor="ada")


def complaints(store):
    return [check.message for check in doctor.check_store(store) if check.name == "schedule"]


def test_schedules_that_are_in_trouble(store, clock):
    """Late, failing, paused, and decided in the future."""
    for name in ("late", "broken", "paused", "ahead"):
        make(store, name)
    store.schedules.pause("paused", actor="ada", note="the moon")
    due = {each.name: each for each in store.schedules.due(providers=[], limit=10).schedules}
    store.schedules.record_failure(due["broken"], "boom")
    until = clock.now() + timedelta(days=900)
    ahead = Advance(name="ahead", token=due["ahead"].token, cursor=until, next_at=until, overlap=Overlap.SKIP)
    store.plans.advance([ahead])
    clock.advance(minutes=3)
    texts = complaints(store)
    assert texts[0] == "'broken' cannot be planned: boom"
    assert "'late' has been due since 2030-01-01 12:00:00 UTC; no scheduler runs" in texts
    assert "'paused' is paused: the moon" in texts
    assert any(text.startswith("'ahead' fires nothing before") for text in texts)


def test_one_that_starts_later_is_in_order(store, clock):
    """A definition that cannot be read does not hide the other schedules."""
    later = Definition(kind="mail", cron="@hourly", start=clock.now() + timedelta(days=900))
    store.schedules.create("later", later, actor="ada")
    Planner(store, ScopeProviders({}), counts=Stats()).tick()
    garbage = {
        "definition": '{"kind": 1}',
        "declared": None,
        "application": None,
        "version": 0,
        "provider": None,
        "actor": "ada",
        "token": 0,
    }
    garbage |= dict.fromkeys(("at", "cursor", "next_at"), clock.now())
    store.backend.run(query("create_schedule", name="garbage", **garbage))
    assert complaints(store) == []


def test_a_schedule_whose_jobs_nobody_runs(store):
    make(store, "hourly", kind="post")
    alive(store)
    assert complaints(store) == ["no worker runs kind 'post' of schedule 'hourly'"]


def test_a_file_that_others_may_read(tmp_path):
    path = tmp_path / "jobs.db"
    store = open_store(f"sqlite:///{path}")
    path.chmod(0o644)
    assert messages(doctor.check_store(store))["permissions"] == f"others may read {path} (mode 644)"
    store.close()


@pytest.fixture
def server(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database.open()


def test_missing_privileges(server):
    server.database.tools.apply([*server.database.tools.roles(), "DROP ROLE IF EXISTS looker"])
    server.database.tools.apply(["CREATE ROLE looker LOGIN IN ROLE holdfast_reader"])
    reader = open_store(f"{server.backend.url}&user=looker")
    server.database.tools.apply(["REVOKE holdfast_reader FROM looker", "GRANT USAGE ON SCHEMA holdfast TO looker"])
    warnings = messages(reader.database.tools.health())["privileges"]
    assert "this user may not change" in warnings
    assert {"attempt,", "batch,", "finished,"} <= set(warnings.split())
    reader.close()
    server.database.tools.apply(["DROP OWNED BY looker", "DROP ROLE looker"])


def test_a_transaction_that_keeps_vacuum_from_its_work(server, monkeypatch):
    monkeypatch.setattr("holdfast.store.postgres.health.OLD_TRANSACTION", timedelta(0))
    with psycopg.connect(server.backend.url) as idle:
        idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")
        # The server's own vacuum may have a transaction too.
        own = f"a transaction of backend {idle.info.backend_pid} is open"
        (check,) = [each for each in server.database.tools.health() if each.message.startswith(own)]
        assert (check.name, check.level, bool(check.fix)) == ("vacuum", Level.WARN, True)


@pytest.mark.parametrize("role", ["reader", "producer"])
def test_checks_without_the_right_to_them_are_marked_and_the_others_done(server, role):
    server.database.tools.apply([*server.database.tools.roles(), "DROP ROLE IF EXISTS shop_web"])
    server.database.tools.apply([f"CREATE ROLE shop_web LOGIN IN ROLE holdfast_{role}"])
    store = open_store(f"{server.backend.url}&user=shop_web")
    checks = list(doctor.examine(lambda: store))
    store.close()
    server.database.tools.apply(["DROP ROLE shop_web"])
    assert [check.message for check in checks if check.level is Level.FAIL] == []
    skipped = {check.name: check for check in checks if check.message.startswith("not checked: database user shop_web")}
    assert set(skipped) == {"vacuum", *(("fleet", "commands") if role == "producer" else ())}
    rights = {name: "pg_monitor" if name == "vacuum" else "holdfast_reader" for name in skipped}
    assert all(f"GRANT {rights[name]} TO shop_web" in check.fix for name, check in skipped.items())
    assert [check.message for check in checks if check.name == "privileges"] == [
        f"this user has the role holdfast_{role}: it cannot run jobs"
    ]
    assert {"store", "privileges", "connections", "clock"} <= {check.name for check in checks}


def test_each_check_of_a_sound_store_has_a_name_of_its_own(server):
    names = [check.name for check in doctor.examine(lambda: server)]
    assert len(names) == len(set(names))


def test_a_wrong_clock(store, clock):
    """The test store lives in another year."""
    assert "differ by" in messages(doctor.clock(store))["clock"]


@pytest.mark.one_backend
def test_a_fix_can_be_copied_whatever_the_names_are(store):
    """A shell parses a name as one word, and a command does not parse it as an option."""
    names = {"a; touch PWNED #": "'a; touch PWNED #'", "-x": "-- -x", "plain": "plain"}
    for name in names:
        store.queues.pause(name)
        make(store, name)
        store.schedules.pause(name, actor="ada")
    fixes = {check.fix for check in doctor.check_store(store)}
    for text in names.values():
        assert {f"holdfast queue resume {text}", f"holdfast schedule resume {text}"} <= fixes
