"""Connections: clients that send their headers slowly keep nobody out."""

from __future__ import annotations

import socket
import time
import urllib.request
from contextlib import ExitStack

import pytest

from holdfast.domain.access.roles import Role
from tests.support.processes import wait_until

pytestmark = pytest.mark.one_backend


@pytest.fixture
def server(make_server):
    server = make_server("127.0.0.1:0")
    server.start()
    yield server
    server.stop()


def line_of(server):
    return server._server.config.http.keywords["line"]


def half_open(server):
    """A connection that has sent the beginning of a request."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    return connection


def get(server, path, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), timeout=60) as answer:
        return answer.status


def test_a_thousand_slow_clients_keep_nobody_out(server, app):
    """E6.2: health checks and pages answer; of the slow connections only some stay open."""
    token = app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    with ExitStack() as stack:
        for number in range(1000):
            stack.enter_context(half_open(server))
            if number % 250 == 249:
                assert get(server, "/healthz") == 200
                assert get(server, "/readyz") == 200
                assert get(server, "/jobs", token) == 200
        waiting = len(line_of(server))
        assert waiting <= 256, f"E6 is broken: {waiting} connections without a request are open"
    wait_until(lambda: not line_of(server))


def test_headers_must_arrive_in_time(make_server, monkeypatch):
    """E6.2: also those of the second request of a connection."""
    monkeypatch.setattr("holdfast.web.server.HEADER_TIMEOUT_S", 0.2)
    server = make_server("127.0.0.1:0")
    server.start()
    try:
        with half_open(server) as slow:
            assert slow.recv(100) == b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as second:
            second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nX-Slow: ")
            answer, began = b"", time.monotonic()
            while data := second.recv(1000):
                answer += data
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.count(b"HTTP/1.1") == 1
            assert time.monotonic() - began < 60
    finally:
        server.stop()


def test_a_request_leaves_the_line(server):
    """While it is answered, and its connection waits again afterwards."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += connection.recv(1000)
            wait_until(lambda: len(line_of(server)) == 1)
    wait_until(lambda: not line_of(server))
