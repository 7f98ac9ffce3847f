"""examples/crawler: children, one live job per part, a session that expires, dead jobs that are run again."""

from __future__ import annotations

import json
import urllib.request

import pytest

import holdfast
from holdfast import Selector, State
from tests.support.processes import wait_until
from tests.support.program import ROOT, bundled_server, clean_environment, finished, programs

HERE = f"{ROOT}/examples/crawler"
PARTS = 3 * 4 * 2


@pytest.fixture
def site():
    with bundled_server(f"{HERE}/server.py") as address:
        yield address


@pytest.fixture
def ask(site):
    return lambda path: json.load(urllib.request.urlopen(f"{site}/{path}"))


@pytest.fixture
def start(tmp_path, site):
    with programs(cwd=tmp_path, env=clean_environment(tmp_path, PYTHONPATH=HERE, CRAWL_SITE=site)) as start:
        yield start


@pytest.fixture
def call(start):
    return lambda *words: finished(start(*words))


@pytest.fixture
def crawler(call):
    return lambda *words: call(f"{HERE}/crawler.py", *words)[1]


@pytest.fixture
def wait(call):
    return lambda: call("-m", "holdfast", "wait", "--queue", "crawl")[0]


@pytest.fixture
def app(tmp_path):
    with holdfast.Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


def live(app, *states):
    return app.views.count(Selector(queues=("crawl",), states=states or None)).count


def test_the_library_is_read_once(start, call, crawler, wait, app, ask):
    """What is broken is dead until it is mended; an expired session costs nothing but the wait for a person."""
    crawler("login")
    start("-m", "holdfast", "worker", "--app", "crawler:app", "--slots", "4")
    crawler("crawl")
    wait_until(lambda: live(app, State.DEAD) == 1)
    assert wait() == 6
    assert crawler("show").splitlines() == ["series 1: 8 parts", "series 2: 7 parts", "series 3: 8 parts"]
    (dead,) = app.views.page(Selector(states=(State.DEAD,))).jobs
    assert (dead.kind, dead.attempts, json.loads(dead.payload)["series"]) == ("read_content", 3, 2)

    ask("mend")
    assert call("-m", "holdfast", "retry", "--state", "dead")[0] == 0
    assert wait() == 0
    assert set(ask("count").values()) == {1}
    assert len(ask("count")) == PARTS

    ask("expire")
    crawler("crawl", "--force")
    wait_until(lambda: app.queues.get("crawl").paused)
    assert "session has expired" in app.queues.get("crawl").note
    wait_until(lambda: live(app, State.RUNNING) == 0)
    assert [job.attempts for job in app.views.all(Selector(states=(State.READY,)))] == [0]
    crawler("login")
    wait_until(lambda: len(ask("count")) == PARTS and set(ask("count").values()) == {2})
    assert wait() == 0


def test_there_is_one_live_job_per_chapter(crawler, app):
    first, second = crawler("refetch", "1", "2"), crawler("refetch", "1", "2")
    assert (first, second) == ("job 1\n", "job 1 already does this\n")
    assert live(app) == 1
