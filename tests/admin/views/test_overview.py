"""The overview of a store."""

from __future__ import annotations

from holdfast.admin.doctor import checks as doctor
from holdfast.admin.views.overview import overview
from holdfast.domain.fleet.served_names import ServedNames
from holdfast.domain.health_check import Level
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions, PublishedKind, dump_options
from holdfast.domain.jobs.verdict import Unreadable
from holdfast.domain.schedules.definition import Definition
from tests.support.jobs import put, record_start, take_one
from tests.support.open_site import counting

SECRET = "hunter22-and-more"


def test_texts_of_schedules_are_masked_without_a_read_of_each(store):
    """E1.1: the overview costs the same number of statements, however many schedules fail or are paused."""
    store.kinds.publish([Kind("pay", lambda iban: None, KindOptions(secrets=("iban",))).published()])
    definition, counts = Definition(kind="pay", cron="@daily", payload={"iban": SECRET}), []
    for number in range(3):
        store.schedules.create(f"paused-{number}", definition, actor="ada")
        store.schedules.create(f"failing-{number}", definition, actor="ada")
        due = store.schedules.get(f"failing-{number}")
        assert store.schedules.record_failure(due, f"{SECRET} is unknown")
        store.schedules.pause(f"paused-{number}", note=f"{SECRET} is wrong", actor="ada")
        with counting(store) as statements:
            view = overview(store)
        counts.append(len(statements))
    assert len(set(counts[1:])) == 1  # the first one reads the declared secrets, too
    texts = {each.name: each.text for each in view.attention}
    assert texts["paused-2"] == "schedule paused-2 is paused: *** is wrong"
    assert texts["failing-2"] == "schedule failing-2 cannot be planned: *** is unknown"
    assert SECRET not in repr(view)


def test_jobs_that_wait_for_other_code(store):
    """After a roll back nothing else shows them."""
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], build="old")
    put(store, kind_version=3)
    store.leases.settle(take_one(store, build="old"), Unreadable(error="no field `cc`", version=1, build="old"))
    text = "1 jobs of mail are held: their payload fits the code of no live worker (version 3)"
    assert [(each.category, each.text) for each in overview(store).attention] == [("unreadable", text)]
    (check,) = [check for check in doctor.check_store(store) if check.level is Level.WARN]
    assert (check.name, check.message) == ("other code", text)
    assert "Start a worker of the code that enqueued them" in check.fix


def test_a_payload_that_fits_no_code_is_told_from_one_for_other_code(store):
    """2.36: no other version could read it, and doctor advised to start one."""
    schema = '{"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}'
    store.kinds.publish([PublishedKind("mail", dump_options(KindOptions()), schema)])
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], build="old")
    for payload, name in (('{"to": 1}', "other code"), ('{"bogus": "x"}', "payload")):
        put(store, payload=payload)
        store.leases.settle(take_one(store, build="old"), Unreadable(error="no", version=1, build="old"))
        (check,) = [check for check in doctor.check_store(store) if check.level is Level.WARN]
        assert check.name == name
    assert "'mail' has no parameter 'bogus'" in check.message
    assert "holdfast cancel" in check.fix


def test_names_of_two_applications(store):
    """D2: doctor and overview name what belongs to two applications, and what a deploy is moving."""
    shop = ServedNames(application="shop", kinds={"mail": "shop.jobs:mail", "old": "shop.jobs:old"})
    for name, names in {
        "w1": shop,
        "w2": ServedNames(application="crm", kinds={"mail": "crm:mail"}),
        "w3": ServedNames(application="shop", kinds={"old": "shop.old:old"}),
    }.items():
        store.workers.announce(WorkerId(name), host="h", pid=1, queues=["default"], kinds=["mail", "old"], names=names)
    across = "the kind 'mail' belongs to several applications: crm of crm and shop.jobs of shop"
    within = "the kind 'old' lives in several modules: shop.jobs of shop and shop.old of shop"
    found = [(each.category, each.name, each.text) for each in overview(store).attention]
    assert found == [("shared_name", "mail", across), ("moved_name", "old", within)], "I23 is broken"
    checks = [check for check in doctor.check_store(store) if check.name == "names"]
    assert [(check.level, check.message) for check in checks] == [(Level.FAIL, across), (Level.WARN, within)]
    assert all(check.fix for check in checks)


def test_a_run_that_cannot_be_stopped(store, clock):
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"])
    job_id = put(store, timeout=20.0)
    record_start(store, take_one(store, worker="w"))
    clock.advance(seconds=31)
    store.workers.heartbeat(WorkerId("w"))
    since = "job 1 is past its timeout since 2030-01-01 12:00:20 UTC; its thread cannot be stopped: holdfast ask w stop"
    assert [(each.name, each.text) for each in overview(store).attention] == [(str(job_id), since)]
    (check,) = [check for check in doctor.check_store(store) if check.level is Level.WARN]
    assert (check.name, check.message) == ("timeout", since)
