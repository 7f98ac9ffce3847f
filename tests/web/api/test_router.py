"""The API: the same views and actions as the command line, over HTTP."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import jsonschema
import msgspec
import pytest
from msgspec import structs

from holdfast.domain.access.roles import Role
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import StoreUnavailable
from holdfast.store.access.audit import AuditedBackend
from holdfast.store.access.idempotency_keys import IdempotencyKeys
from holdfast.store.jobs.enqueue import Jobs
from tests.store.batches.test_batches import begin, finish, leave
from tests.support.jobs import claim_jobs, put
from tests.web.conftest import Client


@pytest.fixture
def drained(app):
    """Runs all ready jobs."""
    return lambda: app.worker(drain=True, poll=0.02).run()


def test_a_job_is_enqueued_and_read(operator, drained):
    """A key enqueues once. The answer has the whole history, in the envelope of the command line."""
    placed = operator.change("/jobs", 201, kind="mail", payload={"to": 1}, key="k", label="a")
    expected = {"id": placed["id"], "created": True, "outcome": "created", "kind": "mail", "queue": "default"}
    assert placed == {**expected, "dry_run": False, "cancelled": []}
    assert operator.change("/jobs", 201, kind="mail", payload={"to": 1}, key="k")["outcome"] == "existing"
    again = operator.change("/jobs", 201, kind="mail", payload={"to": 1}, key="k", on_conflict="rerun")
    assert (again["id"], again["outcome"]) == (placed["id"], "replaced")
    drained()
    answer = operator.get(f"/api/v1/jobs/{placed['id']}").json()
    assert (answer["status"], answer["schema_version"], answer["error"]) == ("success", 1, None)
    detail = answer["data"]
    assert (detail["job"]["state"], detail["job"]["result"], detail["job"]["actor"]) == ("done", "hello 1", "operator")
    assert [event["name"] for event in detail["events"]] == ["enqueued", "replaced", "started", "done"]


def test_lists_come_in_pages(operator):
    for n in range(5):
        operator.change("/jobs", 201, kind="mail", payload={"to": n})
    first = operator.read("/jobs", limit=3)
    rest = operator.read("/jobs", limit=3, before=first["next"])
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == [5, 4, 3, 2, 1]
    assert rest["next"] is None
    assert operator.read("/jobs", filter="state=dead")["jobs"] == []
    assert operator.read("/jobs/count", filter="kind=mail") == {"count": 5, "capped": False}


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/jobs", {"filter": "state=dead error=a"}),
        ("/jobs/count", {"filter": "error=''"}),
        ("/jobs", {"filter": "label=whole,x*"}),
        ("/jobs/count", {"filter": "label=*x*"}),
        ("/batches", {"name": "x*"}),
        ("/batches/1/units", {"text": "a"}),
    ],
)
def test_viewers_cannot_search_for_parts_of_texts(viewer, operator, app, path, query):
    """Stored texts are not masked: a viewer could guess a secret letter by letter."""
    begin(app.store)
    refused = viewer.get(f"/api/v1{path}", params=query)
    assert refused.status_code == 403
    assert "needs the role operator" in refused.json()["error"]["message"]
    assert refused.json()["error"]["hint"]
    operator.read(path, **query)


@pytest.mark.one_backend
def test_viewers_find_whole_labels_and_names(viewer, app):
    put(app.store, "mail", label="sw/year=2020")
    assert viewer.read("/jobs/count", filter="label=sw kind=m*")["count"] == 1
    assert viewer.read("/batches", name="x", function="m*")["batches"] == []


def test_actions_take_a_filter(operator, app):
    """A dry run gives the same answer. The audit log names the actor. An option of another action is refused."""
    operator.change("/jobs", 201, kind="mail", payload={"to": 1}, label="a")
    tried = operator.change("/jobs/action", action="hold", filter="label=a", note="the moon", dry_run=True)
    done = operator.change("/jobs/action", action="hold", filter="label=a", note="the moon")
    assert (done["ids"], tried) == ([1], {**done, "dry_run": True})
    again = operator.change("/jobs/action", action="hold", filter="label=a")
    assert (again["changed"], again["unchanged"][0]["ids"]) == (0, [1])
    operator.change("/jobs/action", 400, action="cancel", filter="label=a", priority=7)
    record = operator.read("/audit-log")["entries"][0]
    assert (record["actor"], record["via"], record["action"], record["target"]) == (
        "operator",
        "api",
        "hold",
        "label=a",
    )
    operator.change("/jobs/action", action="set", filter="id=1", priority=7)
    assert app.views.get(1).priority == 7


def test_a_far_date_is_refused_and_breaks_no_list(operator):
    for when in ("9999-12-31T23:59:59-12:00", "10000-01-01T00:00:00Z"):
        operator.change("/jobs", 400, kind="mail", payload={"to": 1}, run_at=when)
    operator.change("/jobs", 201, kind="mail", payload={"to": 1})
    operator.change("/jobs/action", 400, action="set", filter="id=1", run_at="9999-12-31T23:59:59-12:00")
    assert len(operator.read("/jobs")["jobs"]) == 1


def test_commands_need_an_admin(operator, admin):
    """A command may do anything on the host."""
    payload = {"argv": ["true"], "cwd": "/"}
    operator.change("/jobs", 403, kind="command", payload=payload)
    assert admin.change("/jobs", 201, kind="command", payload=payload)["created"]
    admin.change("/jobs", 400, kind="command", payload={"argv": 7})


def test_secrets_are_masked_everywhere(operator, drained, app):
    """In lists, details, errors and schedules."""
    operator.change("/jobs", 201, kind="pay", payload={"iban": "DE02-1234"})
    app.schedules.create("pay", "pay", "@daily", payload={"iban": "DE02-1234"})
    drained()
    for path in ("/jobs", "/jobs/1", "/errors", "/overview", "/schedules", "/audit-log"):
        assert "DE02-1234" not in json.dumps(operator.read(path)), path
    assert "DE02-1234" not in json.dumps(operator.read("/schedule", name="pay"))


def test_clusters_of_errors_are_dealt_with(operator, admin, drained):
    for _ in range(2):
        operator.change("/jobs", 201, kind="pay", payload={"iban": "DE02-1234"})
    drained()
    (cluster,) = operator.read("/errors")["clusters"]
    assert (cluster["kind"], cluster["count"]) == ("pay", 2)
    assert operator.change("/errors/action", action="retry", cluster=cluster["key"], dry_run=True)["matched"] == 2
    assert operator.change("/errors/action", action="retry", cluster=cluster["key"])["changed"] == 2
    drained()
    operator.change("/errors/action", 403, action="rm", cluster=cluster["key"])
    assert admin.change("/errors/action", action="rm", cluster=cluster["key"])["changed"] == 2
    operator.change("/errors/action", 404, action="retry", cluster=cluster["key"])


def test_batches_and_their_units(operator, app):
    run = begin(app.store)
    finish(app.store, run, 100, label="kept")
    for n in range(3):
        finish(app.store, run, n, state=UnitState.FAILED, error=f"row {n}")
    leave(app.store, run, total=4)
    (batch,) = operator.read("/batches")["batches"]
    assert (batch["state"], batch["summary"]["failed"], batch["summary"]["labels"]) == ("partial", 3, {"kept": 1})
    (cluster,) = operator.read("/batches/1")["clusters"]
    first = operator.read("/batches/1/units", state="failed", limit=2)
    rest = operator.read("/batches/1/units", state="failed", limit=2, after=first["next"])
    assert [unit["key"] for unit in first["units"] + rest["units"]] == [0, 1, 2]
    tried = operator.change("/batches/1/action", action="retry-failed", dry_run=True)
    assert (tried["changed"], tried["units"], tried["dry_run"], tried["note"]) == (True, 3, True, None)
    assert operator.change("/batches/1/units/action", action="skip", cluster=cluster["key"])["units"] == 3
    assert operator.read("/batches/1")["batch"]["state"] == "done"
    operator.change("/batches/1/action", 403, action="rm")
    operator.change("/batches/1/action", 400, action="explode")
    operator.change("/batches/9/action", 404, action="pause")


def test_schedules_by_any_name(operator, admin, app):
    """Also with slashes and spaces. A dry run changes nothing."""
    name = "a/b c?d#e%2F"
    app.schedules.create(name, "mail", "@hourly", payload={"to": 1})
    assert operator.read("/schedule", name=name)["schedule"]["words"]
    assert operator.read("/schedules", limit=1)["next"] == name
    for action in ("pause", "trigger", "backfill", "resume"):
        first = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
        options = {"first": first} if action == "backfill" else {}
        operator.change("/schedules/action", name=name, action=action, **options, dry_run=True)
    admin.change("/schedules/action", name=name, action="rm", dry_run=True)
    assert operator.read("/audit-log")["entries"] == []
    assert operator.read("/jobs")["jobs"] == []
    assert operator.change("/schedules/action", name=name, action="pause", note="x")["ids"] == [name]
    assert operator.read("/schedule", name=name)["schedule"]["condition"] == "paused"
    (made,) = operator.change("/schedules/action", name=name, action="trigger")["jobs"]
    assert [job["id"] for job in operator.read("/jobs")["jobs"]] == [made]
    operator.change("/schedules/action", 403, name=name, action="rm")
    assert admin.change("/schedules/action", name=name, action="rm")["changed"] == 1
    operator.change("/schedules/action", 404, name=name, action="pause")


def test_the_stop_switch(operator, viewer, app):
    """K9: it is set and cleared over HTTP, by operators, and everybody sees it."""
    held = app.store.jobs.enqueue(NewJob(kind="mail")).id
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    assert operator.read("/stop-switch") == {"stopped": None}
    assert operator.change("/stop-switch/action", action="drain", dry_run=True)["dry_run"] is True
    assert operator.read("/stop-switch") == {"stopped": None}
    viewer.change("/stop-switch/action", 403, action="drain")
    answer = operator.change("/stop-switch/action", action="emergency-stop", note="token=abcdef123456 fire")
    assert answer["jobs"] == [held]
    stopped = viewer.read("/overview")["stopped"]
    assert stopped == viewer.read("/stop-switch")["stopped"]
    assert (stopped["actor"], "abcdef123456" in stopped["note"]) == ("operator", False)
    resumed = operator.change("/stop-switch/action", action="resume")
    assert (resumed["changed"], resumed["jobs"], resumed["dry_run"]) == (1, [held], False)
    assert viewer.read("/overview")["stopped"] is None


def test_queues_and_workers(operator, app):
    assert operator.change("/queues/action", queue="q/1", action="set", limit=3)["ids"] == ["q/1"]
    pause = {"queue": "q/1", "action": "pause", "note": "x"}
    dry = operator.change("/queues/action", **pause, dry_run=True)
    assert not app.store.queues.get("q/1").paused
    assert operator.change("/queues/action", **pause) == {**dry, "dry_run": False}
    assert app.store.queues.get("q/1").paused
    assert [queue["name"] for queue in operator.read("/queues")["queues"]] == ["default", "q/1"]
    operator.change("/queues/action", 400, queue="q/1", action="set")
    app.store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], slots=2)
    assert operator.change("/workers/action", worker="w", action="quiet")["ids"] == ["w"]
    assert operator.read("/workers")["workers"][0]["requested"] == "quiet"
    operator.change("/workers/action", 404, worker="nobody", action="stop")
    operator.change("/workers/action", 400, worker="w", action="explode")


def test_a_dry_run_refuses_like_the_action(admin, app):
    """It answers like the action, and changes nothing."""
    kept = admin.change("/jobs", 201, kind="mail", payload={"to": 1}, key="k")["id"]
    new = admin.change("/jobs", kind="mail", payload={"to": 1}, dry_run=True)
    assert (new["id"], new["created"], new["dry_run"]) == (None, True, True)
    for dry_run, status in ((True, 200), (False, 201)):
        body = {"kind": "mail", "payload": {"to": 1}, "key": "k", "dry_run": dry_run}
        admin.change("/jobs", status, {"Idempotency-Key": "one"}, **body)
    again = admin.change("/jobs", kind="mail", payload={"to": 1}, key="k", dry_run=True)
    assert (again["id"], again["created"]) == (kept, False)
    app.store.jobs.enqueue(NewJob(kind="mail", after=After(ids=(kept,))))
    for status, path, body in (
        (404, "/jobs", {"kind": "mail", "payload": {"to": 1}, "after": [999]}),
        (409, "/jobs/action", {"action": "rm", "filter": "id=1"}),
        (400, "/jobs/action", {"action": "set", "filter": "id=1", "run_at": "soon"}),
        (400, "/jobs/action", {"action": "set", "filter": "id=1", "to_queue": "\n"}),
        (404, "/workers/action", {"worker": "nobody", "action": "stop"}),
        (400, "/filters/action", {"action": "save", "name": "odd", "filter": "colour=red"}),
        (404, "/filters/action", {"action": "rm", "name": "odd"}),
        (400, "/queues/action", {"queue": "\n", "action": "set", "limit": 1}),
    ):
        admin.change(path, status, **body, dry_run=True)
        admin.change(path, status, **body)
    assert len(admin.read("/jobs")["jobs"]) == 2
    assert [record["action"] for record in admin.read("/audit-log")["entries"]] == ["enqueue"]


def test_saved_filters_and_kinds(operator):
    operator.change("/filters/action", action="save", name="trouble", filter="state=dead")
    operator.change("/filters/action", 400, action="save", name="odd", filter="colour=red")
    assert [filters["filter"] for filters in operator.read("/filters")["filters"]] == ["state=dead"]
    operator.change("/filters/action", action="rm", name="trouble")
    assert {"mail", "pay"} <= {kind["name"] for kind in operator.read("/kinds")["kinds"]}
    assert operator.read("/me") == {"name": "operator", "role": "operator"}


def test_a_request_with_a_key_is_carried_out_once(operator, site, tokens):
    """The answer is repeated. Another request with the key is refused; another credential has its own keys."""
    key = {"idempotency-key": "order-7"}
    first = operator.change("/jobs", 201, headers=key, kind="mail", payload={"to": 1})
    again = operator.post("/api/v1/jobs", json={"kind": "mail", "payload": {"to": 1}}, headers=key)
    assert (again.status_code, again.json()["data"], again.headers["idempotent-replay"]) == (201, first, "true")
    operator.change("/jobs", 409, headers=key, kind="mail", payload={"to": 2})
    assert Client(site, tokens[Role.ADMIN]).change("/jobs", 201, headers=key, kind="mail", payload={"to": 1})["id"] == 2
    operator.change("/jobs", 404, headers={"idempotency-key": "odd"}, kind="nothing")
    operator.change("/jobs", 404, headers={"idempotency-key": "odd"}, kind="nothing")
    operator.change("/jobs/action", 403, headers={"idempotency-key": "rm"}, action="rm", filter="id=1")
    again = Client(site, tokens[Role.OPERATOR]).post(
        "/api/v1/jobs/action", json={"action": "rm", "filter": "id=1"}, headers={"idempotency-key": "rm"}
    )
    assert (again.status_code, "idempotent-replay" in again.headers) == (403, False)
    operator.change("/jobs", 400, headers={"idempotency-key": "x" * 201}, kind="mail", payload={"to": 1})
    assert len(operator.read("/jobs")["jobs"]) == 2


def _fails_once(monkeypatch, place, name, *, after=False):
    """The first call of a method breaks the connection, before it does something or after."""
    real, calls = getattr(place, name), []

    def broken(*args, **options):
        calls.append(name)
        if len(calls) == 1:
            if after:
                real(*args, **options)
            raise StoreUnavailable("the connection broke")
        return real(*args, **options)

    monkeypatch.setattr(place, name, broken)
    return calls


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("place", "name"),
    [(IdempotencyKeys, "claim"), (Jobs, "enqueue_many"), (AuditedBackend, "write"), (IdempotencyKeys, "keep")],
)
def test_a_retry_after_a_broken_connection_creates_no_second_job(operator, monkeypatch, place, name, after):
    """K73: the act, its audit entry and the kept answer are one transaction."""
    request = {"json": {"kind": "mail", "payload": {"to": 1}}, "headers": {"idempotency-key": "order-7"}}
    calls = _fails_once(monkeypatch, place, name, after=after)
    assert operator.post("/api/v1/jobs", **request).status_code == 503
    answers = [operator.post("/api/v1/jobs", **request) for _ in range(2)]
    assert calls
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["data"] == answers[1].json()["data"]
    assert len(operator.read("/jobs")["jobs"]) == 1, "K73 is broken"
    assert [entry["action"] for entry in operator.read("/audit-log")["entries"]] == ["enqueue"]


def test_a_lost_answer_is_repeated(operator, app, monkeypatch):
    """K73: the commit arrived, its answer did not."""
    request = {"json": {"kind": "mail", "payload": {"to": 1}}, "headers": {"idempotency-key": "order-7"}}
    real = app.store.backend.transaction

    @contextmanager
    def broken(**options):
        with real(**options) as connection:
            yield connection
        raise StoreUnavailable("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(app.store.backend, "transaction", broken)
        assert operator.post("/api/v1/jobs", **request).status_code == 503
    again = operator.post("/api/v1/jobs", **request)
    assert (again.status_code, again.headers["idempotent-replay"]) == (201, "true")
    assert len(operator.read("/jobs")["jobs"]) == 1


def test_every_action_can_have_a_key(operator, app, drained):
    """K73: reads within a request see its changes, on both backends."""
    run = begin(app.store)
    finish(app.store, run, 1, state=UnitState.FAILED, error="row 1")
    leave(app.store, run, total=1)
    app.schedules.create("hourly", "mail", "@hourly", payload={"to": 1})
    operator.change("/jobs", 201, {"idempotency-key": "0"}, kind="pay", payload={"iban": "DE02-1234"})
    drained()
    (cluster,) = operator.read("/errors")["clusters"]
    paths = [
        ("/jobs/action", {"action": "retry", "filter": "state=dead"}),
        ("/jobs/action", {"action": "hold", "filter": "kind=pay", "note": "why"}),
        ("/queues/action", {"queue": "q", "action": "set", "limit": 3}),
        ("/batches/1/action", {"action": "retry-failed"}),
        ("/schedules/action", {"name": "hourly", "action": "trigger"}),
        ("/schedules/action", {"name": "hourly", "action": "pause"}),
        ("/filters/action", {"action": "save", "name": "trouble", "filter": "state=dead"}),
    ]
    first = [operator.change(path, 200, {"idempotency-key": str(n)}, **body) for n, (path, body) in enumerate(paths, 1)]
    again = [operator.change(path, 200, {"idempotency-key": str(n)}, **body) for n, (path, body) in enumerate(paths, 1)]
    assert first == again
    assert (first[2]["ids"], first[5]["ids"]) == (["q"], ["hourly"])
    assert len(operator.read("/audit-log")["entries"]) == 8
    operator.change("/errors/action", 404, {"idempotency-key": "x"}, action="retry", cluster=cluster["key"])


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/jobs/99", 404, "E_NO_SUCH_JOB"),
        ("/jobs/99999999999999999999", 404, "E_NOT_FOUND"),
        ("/jobs?filter=colour%3Dred", 400, "E_INVALID"),
        ("/jobs?limit=0", 400, "E_INVALID"),
        ("/jobs?limit=1&limit=2", 400, "E_INVALID"),
        ("/jobs?colour=red", 400, "E_INVALID"),
        ("/jobs?filter=%00", 400, "E_INVALID_TEXT"),
        ("/schedule?name=none", 404, "E_NO_SUCH_SCHEDULE"),
        ("/nothing", 404, "E_NOT_FOUND"),
        ("/jobs/1/log", 404, "E_NO_SUCH_JOB"),
    ],
)
def test_failures_are_envelopes_with_codes(viewer, path, status, code):
    answer = viewer.get(f"/api/v1{path}")
    document = answer.json()
    assert (answer.status_code, document["status"], document["error"]["code"]) == (status, "error", code)
    assert document["error"]["message"]


def test_a_log_is_read_and_searched(operator, app, tmp_path):
    """Logs of commands that ran on this host."""
    store = app.store
    from holdfast.domain.jobs.new_job import NewJob

    argv = ["sh", "-c", "echo token=abc; echo hello"]
    job_id = store.jobs.enqueue(NewJob(kind="command", payload=json.dumps({"argv": argv, "cwd": "/"}))).id
    app.worker(commands=True, drain=True, poll=0.02).run()
    part = operator.read(f"/jobs/{job_id}/log")["part"]
    assert part["lines"] == ["token=***", "hello"]
    assert operator.read(f"/jobs/{job_id}/log", search="hell")["matches"] == [{"number": 2, "text": "hello"}]
    assert operator.read(f"/jobs/{job_id}/log", begin=part["end"])["part"]["lines"] == []


def test_the_description_fits_the_answers(viewer, app):
    """Real answers are valid by the OpenAPI document."""
    app.enqueue("mail", {"to": 1})
    app.schedules.create("s", "mail", "@daily", payload={"to": 1})
    document = viewer.get("/api/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert "/api/v1/events" in document["paths"]
    for path, operations in document["paths"].items():
        if "get" not in operations or path.endswith(("/events", "/openapi.json", "/log")) or "/batches/" in path:
            continue
        required = {"/api/v1/schedule": {"name": "s"}, "/api/v1/inboxes/results": {"inbox": "results"}}
        answer = viewer.get(path.replace("{id}", "1"), params=required.get(path, {}))
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": document["components"]})


@pytest.mark.one_backend
def test_a_payload_of_many_levels_takes_no_page_down(admin, app):
    """It is refused. One that is already in the store is shown without its inner levels."""
    deep = "x"
    for _ in range(900):
        deep = [deep]
    answer = admin.post("/api/v1/jobs", json={"kind": "mail", "payload": {"to": deep}})
    assert (answer.status_code, "nested more than 100 levels" in answer.text) == (400, True)
    body = structs.replace(app.request("mail", {"to": 1}, {}), payload=msgspec.json.encode({"to": deep}).decode())
    job_id = app.store.jobs.enqueue_many([body])[0].id
    for path in ("/jobs", "/api/v1/jobs", f"/jobs/{job_id}", f"/api/v1/jobs/{job_id}"):
        assert admin.get(path).status_code == 200, path


@pytest.mark.one_backend
@pytest.mark.parametrize("wrong", [{"to_queue": "a\x00b"}, {"run_at": "some day"}, {"priority": 2**40}])
def test_values_that_make_no_sense_change_nothing(admin, app, wrong):
    """All values are checked before the first one is set."""
    job_id = admin.change("/jobs", 201, kind="mail", payload={"to": 1})["id"]
    right = {"priority": 7, "to_queue": "other", "run_at": "2099-01-01T00:00:00Z"}
    admin.change("/jobs/action", 400, action="set", filter=f"id={job_id}", **{**right, **wrong})
    job = app.views.get(job_id)
    assert (job.priority, job.queue) == (0, "default")
