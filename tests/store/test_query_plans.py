"""The plan of a statement depends neither on statistics nor on the number of jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, Lease, State, Token, WorkerId
from holdfast.domain.jobs.lane_position import LanePositions
from holdfast.domain.jobs.new_job import NewJob, OnConflict, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Unreadable
from holdfast.domain.retention import Retention
from holdfast.errors import NoSuchJob
from holdfast.store import Store
from holdfast.store.engine import sql
from holdfast.store.engine.database import CHECKS
from holdfast.store.engine.operation import query
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import available, postgres_url
from tests.support.jobs import claim_jobs, prune, record_start
from tests.support.query_plans import BigPostgres, BigSqlite, Cost, Layout

WORKER = WorkerId("w2")
#: The worker of all running jobs.
HOLDER = WorkerId("w1")
#: An hour ago.
SINCE = datetime.now(UTC) - timedelta(hours=1)
MINE = {"queues": ["mine", "other"], "kinds": ["mail", "post"]}
#: Limits for an operation on at most a hundred jobs: a share per job, plus a share per call.
PAGES = 40 * 100 + 200
ROWS = 20 * 100 + 500
STEPS = 1000 * 100 + 20_000


def leases(layout: Layout, *, token: int = 1) -> list[Lease]:
    """The leases of a worker that claimed the first running jobs."""
    now = datetime.now(UTC)
    ids = layout.ids("running")
    return [
        Lease(job_id, Token(token), "mail", "mine", "{}", 1, False, 0, 0, now, None, worker=HOLDER) for job_id in ids
    ]


def complete_effects(store: Store, layout: Layout) -> None:
    """A hundred waiting jobs were locked when their dependencies finished; one of them no longer waits."""
    ids = [*layout.ids("waiting"), *layout.ids("running", 1)]
    store.backend.run(query("insert_pending_effects", ids=ids))
    assert store.leases.complete_effects().taken == len(ids)


def settle(outcome, *, token: int = 1, lost: int = 0, wait: bool = True):
    def operation(store: Store, layout: Layout) -> None:
        settlements = [Settlement(lease, outcome) for lease in leases(layout, token=token)]
        assert len(store.leases.settle_many(settlements, wait=wait).lost) == lost

    return operation


def claim(*, free: int = 100, **options):
    def operation(store: Store, layout: Layout) -> None:
        assert len(claim_jobs(store, WORKER, free, **{**MINE, **options})) == 100

    return operation


def offer(store: Store, layout: Layout) -> None:
    """Refuse a hundred payloads; offer them to a new build, and withdraw them when it is gone."""
    settle(Unreadable(error="no field", build="old"))(store, layout)
    worker = WorkerId("w3")
    store.workers.announce(worker, host="h", pid=1, queues=["mine", "narrow"], kinds=["mail"], build="new")
    assert store.leases.offer_refused(limit=100) == 100
    store.workers.record_stop(worker)
    assert store.leases.offer_refused(limit=100) == 100


def claim_refused(store: Store, layout: Layout) -> None:
    """Claim jobs that only this build may claim, beside those that every build may."""
    store.workers.announce(WorkerId("w3"), host="h", pid=1, queues=["mine"], kinds=["mail"], build="new")
    settle(Unreadable(error="no field", build="old"))(store, layout)
    assert {lease.kind for lease in claim_jobs(store, WORKER, 100, **MINE, build="new")} == {"mail"}


def settle_commands(store: Store, layout: Layout) -> None:
    """A hundred commands fail for good, each of which pauses its queue."""
    request = NewJob(kind="command", queue="commands", payload='{"pause_queue": true}')
    store.jobs.enqueue_many([request] * 100)
    leases = claim_jobs(store, WORKER, 100, queues=["commands"], kinds=["command"])
    store.leases.settle_many([Settlement(lease, Failed(error="boom", permanent=True)) for lease in leases])
    assert store.queues.get("commands").paused


def claim_onward(store: Store, layout: Layout) -> None:
    """Continue behind a first claim, and claim few jobs. SQLite has no use for either."""
    positions = LanePositions().behind(claim_jobs(store, WORKER, 100, **MINE, limits=False))
    route = positions.route(MINE["queues"], MINE["kinds"], 100)
    if store.backend.name != "sqlite":
        durations = dict.fromkeys(MINE["kinds"], timedelta(minutes=1))
        assert len(store.leases.claim_onward(WORKER, route, leases=durations, free=100, ahead=0, short=())) == 100
        few = {"queues": MINE["queues"], "leases": durations, "free": 100, "suspects": (1, 1)}
        assert len(store.leases.claim_few(WORKER, **few)[0]) == 100
        store.leases.any_elsewhere(route)
        store.leases.lane_heads(MINE["queues"], MINE["kinds"])


def enqueue(make):
    """Enqueue a hundred jobs, one call for all of them."""
    return lambda store, layout: store.jobs.enqueue_many([make(n, layout) for n in range(1, 101)])


def action(name: str, block: str, *args):
    """An action on the first hundred jobs of a block."""
    return lambda store, layout: getattr(store.control, name)(
        Selector(ids=tuple(layout.ids(block))), *args, actor="ann"
    )


def page(*, before: bool = False, **selected):
    """A page of a list, from its top or from the middle of the newest block."""
    return lambda store, layout: store.views.page(
        Selector(**selected), before=JobId(2 * layout.live - 2 * layout.later // 3) if before else None, limit=50
    )


def below(**selected):
    """A page that begins below the last job that matches, or close to it."""
    return lambda store, layout: store.views.page(Selector(**selected), before=JobId(2 * layout.mine // 2), limit=50)


def count(**selected):
    return lambda store, layout: store.views.count(Selector(**selected), cap=100)


def keyed(n: int, layout: Layout) -> NewJob:
    """Most keys belong to finished jobs and are free; some are taken, some new."""
    number = {0: 20 * n + 1, 1: 20 * n + 2}.get(n % 20, 20 * n)
    return NewJob(kind="mail", unique=Unique(f"key-{number}"), on_conflict=OnConflict.REPLACE)


def rerun(store: Store, layout: Layout) -> None:
    """A trigger for a job that is running."""
    request = NewJob(kind="again", queue="again", unique=Unique("again"), on_conflict=OnConflict.RERUN)
    store.jobs.enqueue(request)
    claim_jobs(store, "w-0", queues=["again"], kinds=["again"])
    store.jobs.enqueue(request)


def get_unknown(store: Store, layout: Layout) -> None:
    with pytest.raises(NoSuchJob):
        store.views.get(JobId(10**8))


def answer_again(store: Store, layout: Layout) -> None:
    store.idempotency_keys.claim("ci", "key", "digest")
    store.idempotency_keys.claim("ci", "key", "digest")
    store.idempotency_keys.keep("ci", "key", 200, "{}")


OPERATIONS = {
    "claim": claim(limits=False),
    "claim ahead": claim(limits=False, free=8, ahead=92, short=MINE["kinds"]),
    "claim one lane": claim(limits=False, kinds=["mail"], queues=["mine"]),
    "claim onward": claim_onward,
    "claim limited": claim(queues=["narrow"]),
    "any limited": lambda store, layout: store.leases.any_limited(["default", "narrow"]),
    "any unfinished": lambda store, layout: store.leases.any_unfinished(MINE["queues"], MINE["kinds"]),
    "any unfinished anywhere": lambda store, layout: store.leases.any_unfinished(["*"], MINE["kinds"]),
    "renew": lambda store, layout: store.leases.renew(leases(layout)),
    "requests": lambda store, layout: store.leases.requests(leases(layout)),
    "current tokens": lambda store, layout: store.leases.current_tokens(HOLDER, layout.ids("running")),
    "mark": lambda store, layout: record_start(store, leases(layout)[0]),
    "settle done": settle(Done()),
    "settle again": settle(Done(), token=0, lost=100),
    "settle unlocked": settle(Done(), wait=False),
    "settle failed unlocked": settle(Failed(error="boom"), wait=False),
    "settle failed": settle(Failed(error="boom")),
    "settle dead commands": settle_commands,
    "settle dead": settle(Failed(error="boom", permanent=True)),
    "settle unreadable": settle(Unreadable(error="no field", build="old")),
    "offer refused": offer,
    "claim refused": claim_refused,
    "give back": lambda store, layout: store.leases.release(leases(layout)),
    "take over": lambda store, layout: store.leases.take_over(limit=100),
    "take over from a worker": lambda store, layout: store.leases.take_over_from(WorkerId("w-0")),
    "delete orphans": lambda store, layout: store.leases.delete_orphans(),
    "forsake": lambda store, layout: store.leases.release_unknown(
        WorkerId("w-0"), queues=["default"], known=[lease.job_id for lease in leases(layout)]
    ),
    "steps": lambda store, layout: store.steps.kept(leases(layout)[0]),
    "keep a step": lambda store, layout: store.steps.keep(leases(layout)[0], "one", "1"),
    "promote": lambda store, layout: store.leases.promote(limit=100),
    "next due": lambda store, layout: store.leases.next_due(),
    "next not due": lambda store, layout: store.leases.next_due(overdue=False),
    "any lapsed": lambda store, layout: store.leases.any_expired(),
    "complete effects": complete_effects,
    "queue depths": lambda store, layout: store.queues.depths(["default", "other"], cap=100),
    "oldest ready": lambda store, layout: store.queues.oldest_ready(["default", "other"], ["mail", "later"]),
    "queues in use": lambda store, layout: store.queues.with_ready_jobs(),
    "delete queue": lambda store, layout: store.queues.delete("other"),
    "sweep": lambda store, layout: store.leases.check_waiting(limit=100),
    "sweep on": lambda store, layout: store.leases.check_waiting(after=layout.ids("waiting", 900)[-1], limit=100),
    "report": lambda store, layout: store.leases.report(leases(layout)[0], done=1),
    "enqueue": lambda store, layout: store.jobs.enqueue(NewJob(kind="mail")),
    "enqueue jobs that are alike": lambda store, layout: store.jobs.enqueue_alike(NewJob(kind="mail"), ["{}"] * 100),
    "enqueue a child": lambda store, layout: store.jobs.enqueue_child(
        NewJob(kind="mail"), EnqueueCall(leases(layout)[0])
    ),
    "enqueue keys": enqueue(keyed),
    "enqueue a rerun": rerun,
    "enqueue after ids": lambda store, layout: store.jobs.enqueue(
        NewJob(kind="mail", after=After(ids=(*layout.ids("later"), *layout.ids("finished", 80))))
    ),
    "enqueue after key": lambda store, layout: store.jobs.enqueue(
        NewJob(kind="mail", after=After(keys=(("mail", "key-1000"),)))
    ),
    "enqueue after label": lambda store, layout: store.jobs.enqueue(
        NewJob(kind="mail", after=After(labels=("batch-7",)))
    ),
    "cancel": action("cancel", "later"),
    "cancel running": action("cancel", "running"),
    "cancel waiting": action("cancel", "waiting"),
    "hold": action("hold", "later"),
    "unhold": action("unhold", "held"),
    "pause": action("pause", "running"),
    "resume": action("resume", "running"),
    "retry": action("retry", "finished"),
    "restart": action("restart", "finished"),
    "left behind": lambda store, layout: store.control.left_behind(layout.ids("running")),
    "restart what is done": lambda store, layout: store.backend.run(
        query("rerun_done_jobs", ids=layout.ids("finished"))
    ),
    "rewrite": action("rewrite", "later", lambda payload: '{"to": 7}'),
    "hasten": action("retry", "scheduled"),
    "set memory": action("set_memory", "finished", 2**30),
    "line": lambda store, layout: store.autoscaler.queue_line("mine", "mail", limit=100),
    "claim one": lambda store, layout: store.autoscaler.claim(
        WORKER, layout.ids("later", 1)[0], queue="later", lease_duration=timedelta(minutes=1)
    ),
    "set priority": action("set_priority", "later", 7),
    "move": action("move", "later", "other"),
    "reschedule": action("reschedule", "later", datetime(2040, 1, 1, tzinfo=UTC)),
    "remove": lambda store, layout: store.control.delete(Selector(ids=tuple(layout.ids("finished")))),
    "prune": lambda store, layout: prune(
        store,
        *("done", "cancelled", "dead"),
        retention=Retention(done=timedelta(hours=1), cancelled=timedelta(hours=1), dead=timedelta(days=900)),
        limit=100,
    ),
    "waiting jobs": lambda store, layout: store.batches.waiting_jobs(WORKER, **MINE, shards={"mine": 3}, limit=100),
    "prune events": lambda store, layout: prune(
        store, "events", retention=Retention(events=timedelta(days=900)), limit=100
    ),
    "prune requests": lambda store, layout: prune(store, "requests", limit=100),
    "prune keys": lambda store, layout: prune(store, "keys", limit=100),
    "get": lambda store, layout: store.views.get(layout.ids("finished")[50]),
    "get unknown": get_unknown,
    "command start": lambda store, layout: store.leases.start_command(leases(layout)[0]),
    "state": lambda store, layout: store.views.state(layout.ids("finished")[50]),
    "attempts": lambda store, layout: store.views.attempts(JobId(200)),
    "events": lambda store, layout: store.views.events(JobId(200)),
    "dependencies": lambda store, layout: store.views.dependencies(layout.ids("waiting")[50]),
    "why": lambda store, layout: store.views.why(layout.ids("scheduled", 1)[0] - 2),
    "page": page(),
    "page further": page(before=True),
    "page of ids": lambda store, layout: store.views.page(Selector(ids=tuple(layout.ids("later"))), limit=50),
    "page of a label": page(labels=("batch-7",)),
    "page of labels": page(labels=("batch-7", "batch-8")),
    "page of an unknown label": page(labels=("nothing",)),
    "page of a label, held": page(labels=("batch-7",), states=(State.HELD,)),
    "page of a label, ready": page(labels=("batch-7",), states=(State.READY,)),
    "page of keys": page(keys=("key-20", "key-40")),
    "page of a tag": page(tags=("rare",)),
    "page of a tag, dead": page(tags=("rare",), states=(State.DEAD,)),
    "page of an unknown tag": page(tags=("unknown",)),
    "page of dead since": page(states=(State.DEAD,), since=SINCE),
    "page of dead since, further": page(before=True, states=(State.DEAD,), since=SINCE),
    "page of finished since": page(states=(State.DEAD, State.CANCELLED), since=SINCE),
    "page since": page(since=SINCE),
    "page of ready since": page(states=(State.READY,), since=SINCE),
    "page of an error": page(error="unknown"),
    "page of dead, an error": page(error="unknown", states=(State.DEAD,)),
    "count dead since": count(states=(State.DEAD,), since=SINCE),
    "count an error": count(error="unknown"),
    "count": count(),
    "count a label": count(labels=("batch-7",)),
    "page of dead jobs that were not replaced": page(labels=("batch-7",), states=(State.DEAD,), newest=True),
    "count keys": count(keys=("key-20", "key-40")),
    "prune acts": lambda store, layout: prune(store, "audit entries", "responses", limit=100),
    "acts": lambda store, layout: store.audit_log.page(limit=50),
    "acts of a person": lambda store, layout: store.audit_log.page(limit=50, actor="ada"),
    "answer": lambda store, layout: store.idempotency_keys.claim("ci", "key", "digest"),
    "answer again": answer_again,
    "trace": lambda store, layout: store.traces.of(layout.ids("finished")[50]),
    "board lanes": lambda store, layout: store.dashboard.lanes(cap=100),
    "board scheduled lanes": lambda store, layout: store.dashboard.scheduled_lanes(limit=100),
    "board queues": lambda store, layout: store.dashboard.queues(cap=100),
    "board counts": lambda store, layout: store.dashboard.tallies(cap=100, most=100, span=timedelta(days=3000)),
    "board trouble": lambda store, layout: store.dashboard.trouble(limit=20),
    "board errors": lambda store, layout: store.dashboard.errors(limit=100),
    "board errors of retrying jobs": lambda store, layout: store.dashboard.retrying_errors(limit=100),
    "board running": lambda store, layout: store.dashboard.running(limit=100),
    "board edges": lambda store, layout: store.dashboard.edges(layout.ids("waiting")[50]),
    "pulse": lambda store, layout: store.dashboard.change_counters(),
    "story": lambda store, layout: store.dashboard.job_record(layout.ids("scheduled", 1)[0] - 2),
    "story of an ended job": lambda store, layout: store.dashboard.job_record(layout.ids("finished")[50]),
    "brief page": lambda store, layout: store.views.page(Selector(), limit=50, brief=True),
    **{f"page of {state}": page(states=(state,)) for state in State},
    **{f"page of {state} further": page(states=(state,), before=True) for state in State},
    **{f"last page of {state}": below(states=(state,)) for state in State},
    **{f"count {state}": count(states=(state,)) for state in State},
}

#: Statements on tables that do not grow with the jobs.
SMALL = {
    *(
        "read_now",
        "read_installation",
        "allocate_job_ids",
        "draw_job_ids",
        "lock_limited_queues",
        "find_limited_queue",
    ),
    *(
        "insert_audit_entry",
        "update_audit_entry",
        "insert_credential",
        "list_credentials",
        "revoke_credential",
        "touch_credential",
    ),
    *("get_valid_credential", "has_valid_credential", "get_credential_named", "insert_secret", "get_secret"),
    *(
        "insert_session",
        "get_session",
        "list_current_access",
        "use_link",
        "delete_session",
        "delete_sessions_of",
        "prune_sessions",
    ),
    *(
        "save_filter",
        "delete_filter",
        "list_filters",
        "read_command_switch",
        "switch_commands_on",
        "switch_commands_off",
    ),
    *("set_queue_limits", "set_queue_scale", "pause_queue", "resume_queue", "get_queue", "list_queues"),
    "list_paused_queues",
    *("set_stop_switch", "clear_stop_switch", "read_stop_switch", "limit_lock_waits", "lock_stop_switch"),
    *("publish_kind", "get_kind", "get_fresh_kind", "list_kinds", "list_kind_options", "prune_kinds"),
    *("list_masked_kinds", "list_secret_fields", "delete_secret_field", "find_live_orphans", "delete_orphans"),
    *("get_memory_profiles", "lock_memory_profiles", "save_memory_profiles"),
    *("insert_decisions", "list_decisions", "prune_memory_profiles", "prune_decisions", "prune_workers"),
    *("prune_credentials", "read_free_pages", "return_free_pages"),
    *(*sql.statements("sqlite", noun="workers"), "get_worker_host"),
}
#: Statements that run only after a broken connection, where ids are drawn beforehand, or for a producer.
UNSEEN = {"get_own_job", "count_jobs_of_call", "skip_job_ids", "find_jobs_by_label_pattern"}
#: Statements of PostgreSQL alone; the tests above observe them there.
POSTGRES_ONLY = {
    "claim_few",
    "claim_onward",
    "find_job_elsewhere",
    "insert_jobs",
    "list_lane_heads",
    "take_turn",
}
#: The consistency checks read everything, and the end of an emergency stop reads all held jobs.
DATABASE = {*CHECKS, "find_any_job", "find_any_holder", "list_stopped_jobs"}
#: Batches have tables of their own: see batches/test_query_plans.py.
BATCHES = {name for noun in ("batches", "units", "inbox") for name in sql.statements("sqlite", noun=noun)}
#: So have schedules: see schedules/test_query_plans.py.
SCHEDULES = {
    *(name for noun in ("schedules", "plans") for name in sql.statements("sqlite", noun=noun)),
    *("delete_dependencies", "prune_plans", "prune_skipped_plans"),
}


#: Statistics can be set only where the tests own the server.
JOBS = {"postgres": 1_000_000, "postgres-system": 200_000}
SERVERS = [name for name in available() if name in JOBS]


@pytest.fixture(scope="module")
def postgres_stores():
    """The store on each server, filled at its first use: the tests of one server run in one process."""
    filled: dict[str, BigPostgres] = {}

    def store(name):
        if name not in filled:
            filled[name] = BigPostgres(postgres_url(name), jobs=JOBS[name])
        return filled[name]

    yield store
    for each in filled.values():
        each.close()


@pytest.fixture(scope="module", params=SERVERS)
def postgres(request, postgres_stores):
    return postgres_stores(request.param)


@pytest.fixture(scope="module", params=BigPostgres.STATISTICS)
def big_postgres(request, postgres):
    postgres.use_statistics(request.param)
    return postgres


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory):
    store = BigSqlite(tmp_path_factory.mktemp("plans") / "jobs.db")
    yield store
    store.close()


@pytest.fixture(scope="module", params=BigSqlite.STATISTICS)
def big_sqlite(request, sqlite):
    sqlite.use_statistics(request.param)
    return sqlite


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_postgres_touches_only_what_it_needs(big_postgres, operation):
    """With a million jobs, whatever the planner knows, a statement reads no table as a whole (SPEC 8.17)."""
    for cost in observed(big_postgres, operation):
        assert not cost.walked, f"{cost.statement} walks {cost.walked}\n{cost.plan}"
        assert cost.work <= PAGES, f"{cost.statement} touches {cost.work} pages\n{cost.plan}"
        assert cost.rows <= ROWS, f"{cost.statement} meets {cost.rows} rows in one place\n{cost.plan}"
        assert not cost.compiled, f"{cost.statement} looks so costly that PostgreSQL compiles it\n{cost.plan}"


#: Statements that walk an index in the order of their list, up to its limit.
LISTS = (
    "list_jobs",
    "list_jobs_brief",
    "list_job_ids",
    "count_jobs",
    "find_tagged",
    "list_refused_lanes",
    "list_scheduled_lanes",
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_sqlite_touches_only_what_it_needs(big_sqlite, operation):
    """With a hundred thousand jobs, analysed or not, a statement takes as many steps as with a few."""
    for cost in observed(big_sqlite, operation):
        assert cost.work <= STEPS, f"{cost.statement} takes {cost.work} steps\n{cost.plan}"
        # A list walks in its order; tags and refusals are searched in an index of jobs that have any.
        listed = cost.statement in LISTS
        assert listed or not cost.walked, f"{cost.statement} walks {cost.walked}\n{cost.plan}"


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_every_statement_is_observed(sqlite, backend):
    """A statement on a table that grows belongs to an operation whose plans are tested."""
    observed_names = {cost.statement for operation in OPERATIONS for cost in observed(sqlite, operation)}
    known = sql.statements(backend)
    conditions = {
        name
        for name, text in known.items()
        if not text.startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "("))
    }
    assert (
        known.keys() - conditions - SMALL - UNSEEN - POSTGRES_ONLY - DATABASE - BATCHES - SCHEDULES
        == observed_names - SMALL - UNSEEN - BATCHES - SCHEDULES
    )


def observed(big: BigPostgres | BigSqlite, operation: str) -> list[Cost]:
    costs = big.observe(OPERATIONS[operation])
    assert costs, "the operation ran no statement"
    return costs
