"""Actions: the same rules on every edge, and an audit entry for each change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.batches import UnitCluster
from holdfast.admin.actions.enqueue import build_job
from holdfast.admin.views.batches import BatchReader
from holdfast.admin.views.overview import error_clusters
from holdfast.domain.access.audit import Via
from holdfast.domain.access.roles import Role
from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.commands.command import Edit
from holdfast.domain.jobs.dependencies import After, IfNot
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.selector import Selector, format_filter, parse_filter
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import InvalidInput, InvalidPayload, JobInUse, NoSuchJob, NotFound, UnknownKind
from tests.store.batches.test_batches import begin, finish, leave
from tests.support.jobs import put, state, take_one


def mail(to: int) -> None:
    """A handler."""


@pytest.fixture
def actions(store):
    store.kinds.publish([Kind("mail", mail, KindOptions(queue="post")).published()])
    return Actions(store, actor="ada", via=Via.API)


def records(store):
    return [(record.action, record.target, record.count) for record in store.audit_log.page()]


def dead(store, error, kind="mail"):
    job_id = put(store, kind)
    store.leases.settle(take_one(store, kinds=(kind,)), Failed(error=error, permanent=True))
    return job_id


def test_an_empty_selector_is_refused(actions):
    with pytest.raises(InvalidInput, match="no jobs selected"):
        actions.jobs.perform("cancel", Selector())
    with pytest.raises(NoSuchJob, match="there is no job 7"):
        actions.jobs.perform("cancel", Selector(ids=(7,)))
    with pytest.raises(InvalidInput, match="unknown action 'cancl' for a job") as caught:
        actions.jobs.perform("cancl", Selector(ids=(7,)))
    assert caught.value.hint == "Did you mean 'cancel'?"


@pytest.mark.parametrize("action", ["retry", "restart"])
def test_a_retry_says_which_dependents_stay_behind(actions, store, action):
    """K17: and brings them back when it is asked to."""
    first = put(store)
    second = put(store, "later", after=After(ids=(first,)))
    store.leases.settle(take_one(store), Failed(error="x", permanent=True))
    refused = actions.jobs.perform(action, Selector(ids=(second,)))
    assert (refused.changed, "a job that it depends on has failed" in refused.text) == (0, True)
    assert actions.jobs.perform(action, Selector(ids=(first,))).left_behind == [second]
    store.leases.settle(take_one(store), Failed(error="x", permanent=True))
    both = actions.jobs.perform(action, Selector(ids=(first,)), with_dependents=True)
    assert (both.ids, both.left_behind, both.matched) == ([first, second], [], 2)


def test_a_dry_run_counts_and_changes_nothing(actions, store):
    job_id = put(store)
    done = actions.jobs.perform("cancel", Selector(ids=(job_id,)), dry_run=True)
    assert (done.matched, done.changed, done.ids, done.dry_run) == (1, 1, [job_id], True)
    assert done.text == f"1 job would be cancelled: {job_id}"
    assert state(store, job_id) is State.READY
    assert records(store) == []


def test_options_are_checked_before_any_change(actions, store):
    """Also in a dry run: one invalid option of two changes nothing."""
    job_id = put(store)
    for dry_run in (True, False):
        for options in ({}, {"priority": 7, "run_at": "soon"}, {"priority": 7, "edit": Edit(env={"A B": "1"})}):
            with pytest.raises(InvalidInput):
                actions.jobs.perform("set", Selector(ids=(job_id,)), dry_run=dry_run, **options)
        with pytest.raises(InvalidInput):
            actions.jobs.perform("restart", Selector(ids=(job_id,)), dry_run=dry_run, memory="much")
    assert store.views.get(job_id).priority == 0


def test_a_dry_run_of_a_deletion_refuses_a_job_in_use(actions, store):
    """A dependency of a live job is refused, alone or in a cluster. A dry run deletes nothing."""
    has_dependents, other = dead(store, "row 1"), dead(store, "no network")
    put(store, after=After(ids=(has_dependents,), if_not=IfNot.HOLD))
    clusters = error_clusters(store, limit=10).clusters
    (key,) = [each.key for each in clusters if "row" in each.sample]
    with pytest.raises(JobInUse):
        actions.jobs.perform("rm", Selector(ids=(has_dependents,)), dry_run=True)
    with pytest.raises(JobInUse):
        actions.jobs.perform_on_cluster("rm", key, dry_run=True)
    assert actions.jobs.perform("rm", Selector(ids=(other,)), dry_run=True).matched == 1
    assert {state(store, has_dependents), state(store, other)} == {State.DEAD}


def test_the_filter_is_masked_in_the_audit_log(actions, store):
    job_id = put(store, label="token=abc")
    actions.jobs.perform("cancel", Selector(labels=("token=abc",)))
    assert state(store, job_id) is State.CANCELLED
    assert records(store) == [("cancel", "label='token=***'", 1)]


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ({"error": "hunter22-and-more"}, "error='***'"),
        ({"error": "no card hunter22-and-more left"}, "error='no card *** left'"),
        ({"error": "no card hunter22"}, "error='no card ***'"),
        ({"error": "and-mo"}, "error='***'"),
        ({"labels": ("*ter22-an*",)}, "label='*****'"),
        ({"labels": ("of hunter22-and-more",), "states": (State.DEAD,)}, "label='of ***' state=dead"),
        ({"error": "no card"}, "error='no card'"),
    ],
)
def test_a_secret_in_a_filter_is_masked_in_the_audit_log(actions, store, conditions, shown):
    """W19: people look for the jobs of a secret, or of a piece of it."""
    store.kinds.publish([Kind("pay", mail, KindOptions(secrets=("card",))).published()])
    job_id = put(store, "pay", payload='{"card": "hunter22-and-more"}', label="of hunter22-and-more")
    failed = Failed(error="no card hunter22-and-more left", permanent=True)
    store.leases.settle(take_one(store, kinds=("pay",)), failed)
    actions.jobs.perform("retry", Selector(**conditions))
    assert state(store, job_id) is State.READY
    assert records(store) == [("retry", shown, 1)], "I21 is broken: the audit log shows a secret"


@pytest.mark.one_backend
def test_the_note_is_masked_in_the_audit_log(actions, store):
    actions.queues.perform("pause", "default", note="until password=hunter22 is new")
    assert [record.note for record in store.audit_log.page()] == ["until password=*** is new"]


def test_an_action_that_changes_nothing_is_not_recorded(actions, store):
    """K79: neither on jobs, nor on queues, schedules, filters or batches."""
    job_id = put(store)
    run = begin(store)
    leave(store, run, total=0)
    actions.schedules.create("hourly", "mail", "@hourly", payload={"to": 1})
    for _ in range(2):
        actions.jobs.perform("hold", Selector(ids=(job_id,)), note="why")
        actions.queues.perform("set", "q", limit=3, worker_limit=1)
        actions.queues.perform("set", "q", autoscaler="1-2")
        actions.queues.perform("pause", "q", note="why")
        actions.schedules.perform("pause", "hourly", note="why")
        actions.jobs.save_filter("mine", "state=dead")
        actions.jobs.enqueue("mail", {"to": 1}, key="k")
    for _ in range(2):
        actions.queues.perform("resume", "q")
        actions.schedules.perform("resume", "hourly")
        actions.batches.perform("cancel", run.batch.id)
    actions.queues.perform("resume", "q")
    assert [action for action, *_ in reversed(records(store))] == [
        *("schedule add", "hold", "queue set", "queue set", "queue pause", "schedule pause", "filter save", "enqueue"),
        *("queue resume", "schedule resume"),
    ]


def test_the_name_of_a_token_is_no_secret(actions, store):
    """K79: but its secret is never recorded."""
    audited = actions.audited("token add", "token=ci", note="viewer", changes=bool)
    secret = audited.credentials.add("ci", Role.VIEWER, actor="ada")
    (entry,) = store.audit_log.page()
    assert (entry.target, entry.note) == ("token=ci", "viewer")
    assert secret not in repr(entry)


def test_a_cluster_of_dead_jobs_is_retried(actions, store):
    """Exactly the jobs of the cluster. A second try matches nothing."""
    rows, other = [dead(store, f"row {n}") for n in range(3)], dead(store, "no network")
    first, _ = error_clusters(store, limit=10).clusters
    assert actions.jobs.perform_on_cluster("retry", first.key, dry_run=True).matched == 3
    assert actions.jobs.perform_on_cluster("retry", first.key).ids == rows
    assert [state(store, job_id) for job_id in rows] == [State.READY] * 3
    assert state(store, other) is State.DEAD
    with pytest.raises(NotFound, match="no dead job belongs"):
        actions.jobs.perform_on_cluster("retry", first.key)


def test_a_cluster_of_dead_jobs_is_discarded(actions, store):
    job_id = dead(store, "boom")
    (cluster,) = error_clusters(store, limit=10).clusters
    actions.jobs.perform_on_cluster("rm", cluster.key)
    with pytest.raises(NoSuchJob):
        store.views.get(job_id)
    assert records(store) == [("rm", f"cluster={cluster.key}", 1)]


def test_an_enqueue_is_checked_and_written_down(actions, store):
    placed = actions.jobs.enqueue("mail", {"to": 1}, key="k", delay="1h", label="x")
    assert (placed.created, placed.queue) == (True, "post")
    assert not actions.jobs.enqueue("mail", {"to": 1}, key="k").created
    job = store.views.get(placed.id)
    assert (job.actor, job.state, job.label) == ("ada", State.SCHEDULED, "x")
    with pytest.raises(InvalidPayload):
        actions.jobs.enqueue("mail", {"too": 1})
    with pytest.raises(UnknownKind):
        actions.jobs.enqueue("mial", {})
    with pytest.raises(InvalidInput, match="not a kind that people enqueue"):
        actions.jobs.enqueue("holdfast.driver", {})


@pytest.mark.one_backend
def test_a_time_to_run_at_is_ahead(actions, store):
    job_id = put(store)
    began = datetime.now(UTC)
    actions.jobs.perform("set", Selector(ids=(job_id,)), run_at="1h")
    assert store.views.get(job_id).due_at >= began + timedelta(hours=1)


def test_a_far_date_is_refused(actions, store, clock):
    """A date that cannot be formatted would break every list."""
    job_id = put(store)
    with pytest.raises(InvalidInput, match="too far away"):
        actions.jobs.perform("set", Selector(ids=(job_id,)), run_at="9999-12-31T23:59:59-12:00")
    with pytest.raises(InvalidInput, match="too far away"):
        actions.jobs.enqueue("mail", {"to": 1}, run_at=clock.now().replace(year=9999))


def test_units_by_cluster(actions, store):
    run = begin(store)
    finish(store, run, 100)
    for n in range(3):
        finish(store, run, n, state=UnitState.FAILED, error=f"row {n} is bad" if n else "no network")
    leave(store, run, total=4)
    rows, network = BatchReader(store, run.batch.id).clusters()
    assert actions.units.perform("retry", UnitCluster(run.batch.id, rows.key), dry_run=True).units == 2
    assert actions.units.perform("skip", UnitCluster(run.batch.id, network.key)).units == 1
    assert actions.units.perform("retry", UnitCluster(run.batch.id, rows.key)).units == 2
    counted = store.batches.recount(run.batch.id)
    assert (counted["skipped"], counted["pending"]) == (1, 2)
    with pytest.raises(NotFound):
        actions.units.perform("retry", UnitCluster(run.batch.id, rows.key))


def test_a_backfill_can_be_tried(actions, store, clock):
    """A dry run fires nothing and records nothing."""
    actions.schedules.create("hourly", "mail", "@hourly", payload={"to": 1})
    end = clock.now()
    span = {"first": end - timedelta(hours=3), "last": end}
    dry = actions.schedules.perform("backfill", "hourly", dry_run=True, **span)
    assert (dry.changed, dry.jobs, dry.dry_run) == (4, [], True)
    assert [action for action, *_ in records(store)] == ["schedule add"]
    done = actions.schedules.perform("backfill", "hourly", **span)
    assert (done.changed, len(done.jobs), done.ids) == (4, 4, dry.ids)
    assert records(store)[0][:2] == ("schedule backfill", "schedule=hourly")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state=dead,cancelled kind=mail-* error='no network'",
        "id=1,2 label=a queue=q key=k tag=t",
        r"label='a\,b',c queue='d\,'",
        "since=2030-01-01T00:00:00+00:00 until=2031-01-01T00:00:00+02:00",
    ],
)
def test_a_filter_is_formatted_as_it_is_parsed(text):
    assert parse_filter(format_filter(parse_filter(text))) == parse_filter(text)


def test_a_comma_within_a_value_divides_nothing():
    """An action on one label must not take two others."""
    assert format_filter(Selector(labels=("a,b", "c"))) == r"label='a\,b,c'"
    for labels in [("a,b", "c"), ("a\\", "b"), ("a\\,b",), ("\\", ","), ("",), ("a", "")]:
        assert parse_filter(format_filter(Selector(labels=labels))) == Selector(labels=labels)


def test_a_job_by_the_name_of_its_kind_has_the_published_version(actions, store):
    """K13: the command line and the API enqueue for the newest code that has published the kind."""
    store.kinds.publish([Kind("mail", mail, KindOptions(version=4)).published()])
    assert build_job(store, "mail", {"to": 1}, EnqueueOptions()).kind_version == 4


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("cancel", ("1 job cancelled: {}", "1 job asked to stop: {}")),
        ("pause", ("1 job paused: {}", "1 job asked to pause: {}")),
    ],
)
def test_a_running_job_is_asked_and_not_counted_as_changed(actions, store, action, words):
    """A2: "2 jobs cancelled", although one of them ran on, and might even be done."""
    running, idle = put(store, priority=1), put(store)
    lease = take_one(store)
    selector, expected = Selector(ids=(running, idle)), "; ".join(words).format(idle, running)
    dry = actions.jobs.perform(action, selector, dry_run=True)
    answer = actions.jobs.perform(action, selector)
    assert (answer.changed, answer.ids, answer.requested, answer.text) == (1, [idle], [running], expected)
    assert (dry.ids, dry.requested) == ([idle], [running])
    assert f"1 job would be {words[1].partition('job ')[2].format(running)}" in dry.text
    again = actions.jobs.perform(action, Selector(ids=(running,)))
    assert (again.failed, again.requested) == (True, [])
    store.leases.settle(lease, Done())
    assert state(store, running) is State.DONE


def test_a_kill_asks_running_jobs_only(actions, store):
    running, _ = put(store, priority=1), put(store)
    take_one(store)
    answer = actions.jobs.perform("kill", Selector(kinds=("mail",)))
    assert (answer.failed, answer.changed, answer.requested) == (False, 0, [running])
    assert answer.text.startswith(f"1 of 2 jobs asked to stop: {running}; unchanged: job ")


def test_a_batch_that_runs_is_asked(actions, store):
    """It is paused when its run has released it; without a run, at once."""
    idle, busy = begin(store, "idle"), begin(store, "busy")
    leave(store, idle, AbortedBy.SIGNAL, complete=False)
    answer = actions.batches.perform("pause", idle.batch.id)
    assert (answer.ids, answer.requested) == ([idle.batch.id], [])
    answer = actions.batches.perform("pause", busy.batch.id)
    assert (answer.changed, answer.requested) == (0, [busy.batch.id])
    assert answer.text == f"batch {busy.batch.id} asked to pause"
    answer = actions.batches.perform_on_many("cancel", [idle.batch.id, busy.batch.id])
    assert (answer.ids, answer.requested) == ([idle.batch.id], [busy.batch.id])
    assert answer.text == f"batch {idle.batch.id} cancelled, 0 units; batch {busy.batch.id} asked to stop"
