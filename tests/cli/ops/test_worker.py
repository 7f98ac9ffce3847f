"""``holdfast worker`` as a user runs it: signals, drain, metrics, logs, errors."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from contextlib import closing

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import InvalidInput
from tests.support.jobs import put, take_one
from tests.support.processes import gone, wait_until
from tests.support.program import program
from tests.support.programs import cli_jobs

APP = ("worker", "--app", "tests.support.programs.cli_jobs:app")
#: Timeout in seconds; the default grace takes thirty of them.
SOON = 10


@pytest.fixture
def url(real_database):
    """A URL without a password, which can be compared with the output."""
    real_database.open()
    return real_database.url


@pytest.fixture
def app(url):
    with holdfast.Holdfast(url) as app:
        for kind in cli_jobs.app.kinds.values():
            app._registry.add(kind)
        yield app


def test_drain_ends_when_nothing_is_left(app, url):
    """Exit 0 and a summary; jobs scheduled for later do not count."""
    refs = [app.enqueue("double", {"n": n}) for n in range(30)]
    later = app.enqueue("double", {"n": 1}, delay="1h")
    with program(*APP, "--drain", url=url) as worker:
        code, output = worker.end()
    assert code == 0
    assert "30 done" in output
    assert [ref.result() for ref in refs[:3]] == [0, 2, 4]
    assert later.state is State.SCHEDULED
    assert app.views.attempts(refs[0].id)[0].version == "1.2.3"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_releases_jobs_without_costing_an_attempt(app, url, tmp_path, number):
    """Exit 0 within the grace, for jobs that stop, that do not, and that have not started (SPEC 8.5, 8.11)."""
    paths = [tmp_path / name for name in ("deaf", "obedient", "child")]
    refs = [app.enqueue(path.name, {"path": str(path)}) for path in paths]
    with program(*APP, "--slots", "3", "--grace", "1s", url=url) as worker:
        wait_until(lambda: all(path.exists() for path in paths))
        waiting = [app.enqueue("double", {"n": n}) for n in range(3)]
        worker.send(number)
        began = time.monotonic()
        code, output = worker.end()
    assert code == 0
    assert time.monotonic() - began < SOON
    assert "signal again to exit at once" in output
    assert [(ref.state, ref.job().attempts) for ref in refs + waiting] == [(State.READY, 0)] * 6


def test_a_first_signal_under_load_costs_no_attempt(app, url):
    """At that time thousands of jobs are prefetched, running, or finished and unsettled."""
    app.store.jobs.enqueue_many([app.request("double", {"n": n}, {}) for n in range(20_000)])
    with program(*APP, "--grace", "5s", url=url) as worker:
        wait_until(lambda: app.views.count(Selector(states=(State.DONE,)), cap=500).capped)
        worker.send(signal.SIGTERM)
        code, _ = worker.end()
    assert code == 0
    ends = {(job.state, job.attempts) for job in app.views.all(Selector(), limit=5000)}
    assert ends == {(State.DONE, 1), (State.READY, 0)}


def test_the_second_signal_leaves_at_once(app, url, tmp_path):
    """Exit 130 long before the end of the grace; jobs are released, children are dead (I16)."""
    paths = [tmp_path / name for name in ("deaf", "child")]
    refs = [app.enqueue(path.name, {"path": str(path)}) for path in paths]
    with program(*APP, url=url) as worker:
        wait_until(lambda: all(path.exists() for path in paths) and paths[1].read_text())
        worker.send(signal.SIGINT)
        worker.said("signal again")
        began = time.monotonic()
        worker.send(signal.SIGINT)
        code, _ = worker.end()
    assert code == 130
    assert time.monotonic() - began < SOON
    assert wait_until(lambda: gone(int(paths[1].read_text())))
    assert [(ref.state, ref.job().attempts) for ref in refs] == [(State.READY, 0)] * 2
    assert app.store.workers.list() == [], "nobody waits for one that has left"


@pytest.mark.parametrize(("kind", "number"), [("child", signal.SIGKILL), ("brief_child", signal.SIGSTOP)])
def test_no_child_outlives_its_worker(app, url, tmp_path, kind, number):
    """The supervisor kills it after its worker is killed, or after the lease of a frozen worker expires (SPEC 8.29)."""
    path = tmp_path / "child"
    app.enqueue(kind, {"path": str(path)})
    with program(*APP, url=url) as worker:
        pid = int(wait_until(lambda: path.exists() and path.read_text()))
        worker.send(number)
        assert wait_until(lambda: gone(pid))
        worker.send(signal.SIGCONT)


def test_metrics_and_health(app, url):
    """The names of metrics that dashboards rely on (W10)."""
    for n in range(5):
        app.enqueue("double", {"n": n})
    bad = app.enqueue("broken")
    with program(*APP, "--metrics", "127.0.0.1:0", url=url) as worker:
        port = worker.said("metrics on port").split()[-1]
        bad.wait(120)
        text = wait_until(lambda: (page := fetch(port, "/metrics")[1]) and "broken" in page and page)
        assert fetch(port, "/livez") == (200, "ok\n")
        assert fetch(port, "/readyz") == (200, "ok\n")
        assert fetch(port, "/else")[0] == 404
    assert 'holdfast_jobs_completed_total{kind="double",queue="default",result="done"} 5.0' in text
    assert 'holdfast_jobs_completed_total{kind="broken",queue="default",result="failed"} 1.0' in text
    assert 'holdfast_job_run_seconds_count{kind="double",queue="default"} 5.0' in text
    for name in (
        *("ticks_total{", "jobs_enqueued_total", "job_wait_seconds_bucket{", "queue_depth{", "running_expired 0.0"),
        *("queue_oldest_ready_seconds{", "lease_lost_total", "fence_rejected_total", "heartbeat_age_seconds"),
    ):
        assert f"holdfast_{name}" in text


def test_metrics_beyond_the_loopback_need_a_token(app, url):
    """No open port without authentication."""
    for nothing in ({}, {"HOLDFAST_METRICS_TOKEN": ""}):
        with program(*APP, "--metrics", "0.0.0.0:0", url=url, **nothing) as worker:
            code, output = worker.end()
        assert code == 4
        assert "HOLDFAST_METRICS_TOKEN" in output
    with program(*APP, "--metrics", "0.0.0.0:0", url=url, HOLDFAST_METRICS_TOKEN="secret") as worker:
        port = worker.said("metrics on port").split()[-1]
        assert fetch(port, "/metrics")[0] == 401
        assert fetch(port, "/metrics", token="secret")[0] == 200
        assert fetch(port, "/livez")[0] == 200


def fetch(port, path, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_logs_can_be_json(app, url, tmp_path):
    """Each line has job, attempt, token and worker."""
    path = tmp_path / "obedient"
    ref = app.enqueue("obedient", {"path": str(path)})
    with program(*APP, "--log-format", "json", url=url) as worker:
        line = json.loads(worker.said("hello"))
    assert (line["level"], line["message"], line["job"], line["attempt"]) == ("info", "hello", ref.id, 1)
    assert line["token"] == 1
    assert line["worker"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--app", "tests.run.nothing:app"], 4, "there is no module 'tests.run.nothing'"),
        (["--app", "./ok:app"], 4, "Write MODULE:APP"),
        (
            ["--app", "tests.support.programs.broken_module:app"],
            4,
            "cannot be imported: RuntimeError: raised at import",
        ),
        (["--url", "postgresql://[bad/db"], 4, "cannot be read"),
        (["--url", "postgresql://u:p@w@h/db"], 4, "%40"),
        (["--app", "tests.support.programs.cli_jobs:ap"], 4, "Did you mean tests.support.programs.cli_jobs:app?"),
        (["--slots", "0"], 2, "--slots"),
        (["--metrics", "here"], 2, "HOST:PORT"),
        (["--url", "mysql://x"], 4, "mysql"),
    ],
)
def test_errors_are_reported(url, arguments, code, message):
    with program("worker", *arguments, url=url) as worker:
        actual, output = worker.end()
    assert (actual, message in output) == (code, True), output


@pytest.mark.one_backend
def test_the_start_says_which_store_wins(url, tmp_path):
    """The application's own URL wins over HOLDFAST_URL; --url wins over both."""
    own = f"sqlite:///{tmp_path}/own.db"
    job = "app.job('mail')(lambda: None)\n"
    (tmp_path / "shop.py").write_text(f"import holdfast\napp = holdfast.Holdfast({own!r})\n{job}")
    line = ("worker", "--app", "shop:app", "--drain")
    with program(*line, url=url, PYTHONPATH=str(tmp_path)) as worker:
        output = worker.end()[1]
    assert f"store {own} (the application's own URL overrides {url} of HOLDFAST_URL; --url overrides both)" in output
    with program(*line, "--url", url, url=url, PYTHONPATH=str(tmp_path)) as worker:
        assert f"store {url}\n" in worker.end()[1]


def test_without_an_app_a_worker_only_does_maintenance(url, app):
    """Without kinds, the worker claims nothing."""
    ref = app.enqueue("double", {"n": 1})
    with program("worker", "--drain", url=url) as worker:
        assert worker.end()[0] == 0
    assert ref.state is State.READY


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("flags", "commands"),
    [
        (["--app", "empty_shop:app"], None),
        (["--app", "empty_shop"], None),
        (["--app", "empty_shop:app", "--run-commands", "off"], None),
        (["--app", "empty_shop:app", "--run-commands", "on"], True),
        (["--app", "empty_shop:app", "--kind", "command"], True),
        (["--app", "full_shop:app"], False),
        (["--app", "full_shop:app", "--run-commands", "on"], True),
        ([], True),
        (["--run-commands", "off"], False),
    ],
)
def test_only_a_worker_without_an_application_runs_commands_unasked(url, monkeypatch, tmp_path, flags, commands):
    """B1: an application without kinds lacks an import (None: exit 2). It is no licence to run shell commands."""
    for name, job in (("empty_shop", ""), ("full_shop", "app.job('mail')(lambda: None)\n")):
        (tmp_path / f"{name}.py").write_text(f"import holdfast\napp = holdfast.Holdfast()\n{job}")
    monkeypatch.syspath_prepend(str(tmp_path))
    if commands is not None:
        assert ("command" in _caught_worker(["worker", "--url", url, *flags], monkeypatch)[0].kinds) is commands
        return
    try:
        started = _caught_worker(["worker", "--url", url, *flags], monkeypatch)
    except InvalidInput as error:
        assert "has no kinds: import the modules that register" in error.message  # noqa: PT017
    else:
        pytest.fail(f"E10 is broken: it runs {started[0].kinds}")


class Started(Exception):
    """Carries a worker that did not run, and its application."""


def _caught_worker(line, monkeypatch):
    """The worker that a command builds, which does not run, and its application."""
    from holdfast.cli.main import cli
    from holdfast.cli.ops import worker as commands
    from holdfast.cli.session import CliSession

    def catch(_session, loaded, worker, *_, **__):
        raise Started(worker, loaded)

    monkeypatch.setattr(commands, "run_worker", catch)
    monkeypatch.setattr(commands, "configure_log", lambda **_: None)
    with pytest.raises(Started) as started:
        cli.main(line, standalone_mode=False, obj=CliSession())
    return started.value.args


@pytest.mark.parametrize(
    ("command", "flags"),
    [("worker", ["--retention", "done=1ms"]), ("scheduler", ["--retention", "done=1ms"]), ("worker", [])],
)
def test_workers_prune_by_the_retention_of_flags_and_settings(app, url, monkeypatch, command, flags):
    """E2: a flag overrides the environment, name by name."""
    monkeypatch.setenv("HOLDFAST_RETENTION", "dead=1ms,done=0")
    for outcome in (Done(), Failed(error="x", permanent=True)):
        put(app.store)
        app.store.leases.settle(take_one(app.store), outcome)
    worker, loaded = _caught_worker([command, "--url", url, *flags], monkeypatch)
    (maintenance,) = [each.service for each in worker.services.helpers if each.service.name == "maintenance"]
    for step in maintenance._steps:
        step.due_at = 0.0
    with closing(loaded):
        wait_until(lambda: maintenance.tick() and not app.views.count(Selector(states=(State.DEAD,))).count)
    assert app.views.count(Selector(states=(State.DONE,))).count == (0 if flags else 1)
