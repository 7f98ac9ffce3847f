"""Pings after scheduled jobs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import holdfast
from holdfast import Plan
from holdfast.errors import InvalidInput
from holdfast.worker.schedules.ping import call
from tests.support.processes import wait_until
from tests.support.schedules import declare

#: With it, a new schedule fires its newest plan at once.
PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def web():
    """A server that records the requested paths."""
    paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(302 if "away" in self.path else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.paths = paths
    yield server
    server.shutdown()
    server.server_close()


def ping_state(app):
    return [str(job.state) for job in app.views.page(holdfast.Selector(kinds=("holdfast.ping",))).jobs]


def test_a_success_is_pinged(real_app, web, monkeypatch):
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", "127.0.0.1")
    declare(real_app, "@yearly", start=PAST, ping=f"http://127.0.0.1:{web.server_port}/rollup?a=1")
    with real_app.worker(poll=0.05):
        wait_until(lambda: web.paths)
        wait_until(lambda: ping_state(real_app) == ["done"])
    assert web.paths == ["/rollup?a=1"]


def test_a_failure_is_not_pinged(real_app, web, monkeypatch):
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", "127.0.0.1")

    @real_app.schedule("@yearly", start=PAST, ping=f"http://127.0.0.1:{web.server_port}/rollup")
    @real_app.job(max_attempts=1)
    def rollup(plan: Plan) -> None:
        raise ValueError("no")

    with real_app.worker(poll=0.05):
        wait_until(lambda: ping_state(real_app) == ["cancelled"])
    assert web.paths == []


@pytest.mark.parametrize(
    ("hosts", "host"), [("", "127.0.0.1"), ("example.com", "127.0.0.1"), ("127.0.0.1", "localhost")]
)
def test_only_hosts_that_are_allowed_are_called(real_app, web, monkeypatch, hosts, host):
    """Off by default: a schedule must not reach into the internal network."""
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", hosts)
    declare(real_app, "@yearly", start=PAST, ping=f"http://{host}:{web.server_port}/rollup")
    with real_app.worker(poll=0.05):
        wait_until(lambda: ping_state(real_app) == ["dead"])
    (job,) = real_app.views.page(holdfast.Selector(kinds=("holdfast.ping",))).jobs
    assert "ping_hosts" in job.error
    assert web.paths == []


def test_a_ping_follows_nobody(web):
    with pytest.raises(holdfast.Retry, match="302"):
        call(f"http://127.0.0.1:{web.server_port}/away")
    assert web.paths == ["/away"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x", "http://", "https://user:word@x.example", "x", "http://x:y"]
)
def test_a_url_that_is_not_http_is_refused(app, url):
    declare(app)
    with pytest.raises(InvalidInput, match="ping"):
        app.schedules.create("other", "rollup", "@daily", ping=url)
