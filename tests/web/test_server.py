"""The server: it listens, answers and stops."""

from __future__ import annotations

import json
import urllib.request

import pytest

from holdfast.domain.access.roles import Role
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.engine.operation import query

pytestmark = pytest.mark.one_backend


def ask(url, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def get(url, token=None):
    with ask(url, token) as answer:
        return answer.read()


def test_it_serves_until_it_is_stopped(app, make_server):
    """On its own socket, in a thread of the process."""
    server = make_server("127.0.0.1:0")
    server.start()
    try:
        assert get(f"{server.url}/healthz") == b"ok\n"
        token = app.store.credentials.add("ci", Role.VIEWER, actor="ada")
        assert json.loads(get(f"{server.url}/api/v1/me", token))["data"]["role"] == Role.VIEWER
    finally:
        server.stop()
    assert not server._thread.is_alive()


def test_an_address_in_use_is_an_error(app, make_server):
    first = make_server("127.0.0.1:0")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        make_server(f"127.0.0.1:{first.port}")
    with pytest.raises(Exception, match=r"is not HOST:PORT"):
        make_server("nowhere")


def test_a_slow_read_times_out(app, tmp_path):
    """A slow page costs no more than the timeout of reads."""
    from datetime import timedelta

    app.store.jobs.enqueue_many([app.request("mail", {"to": n}, {}) for n in range(20_000)])
    hasty = open_store(app.url, patience=timedelta(0))
    try:
        with pytest.raises(StoreUnavailable, match="took too long"):
            hasty.backend.fetch(query("count_jobs", limit=100_000))
    finally:
        hasty.close()


def test_a_page_that_is_open_does_not_keep_it(app, make_server):
    """Its stream ends in order; it is not cut off after the grace time."""
    server = make_server("127.0.0.1:0")
    server.start()
    with ask(f"{server.url}/live", app.store.credentials.add("ci", Role.VIEWER, actor="ada")) as stream:
        assert stream.readline().startswith(b"retry:")
        server._server.should_exit = True  # as a signal does
        stream.read()  # http.client.IncompleteRead: it was cut off
    server._thread.join(60)
    assert not server._thread.is_alive()


def test_an_interrupt_ends_it_quietly(app, make_server, monkeypatch):
    """uvicorn raises the signal again after an orderly shutdown."""
    server = make_server("127.0.0.1:0")

    def interrupted(sockets):
        raise KeyboardInterrupt

    monkeypatch.setattr(server._server, "run", interrupted)
    server.run()
