"""A program or a library that sets a default time limit of sockets changes nothing of a worker."""

from __future__ import annotations

import http.server
import os
import signal
import socket
import threading

import pytest

import holdfast
from holdfast import State
from holdfast.worker.metrics import MetricsServer
from holdfast.worker.schedules.ping import call
from holdfast.worker.stop_signals import Signals
from tests.support.processes import wait_until
from tests.support.program import Program
from tests.support.workers import working

LIMIT_S = 0.1
MODULE = "tests.support.programs.socket_defaults"


@pytest.fixture
def limited():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(LIMIT_S)
    yield
    socket.setdefaulttimeout(before)


def thread_named(name):
    return next((each for each in threading.enumerate() if each.name == name), None)


def test_a_worker_program_runs_on_and_its_processes_too(real_database, tmp_path):
    """Issue 36, D2: it exited after the time limit, without a line; commands and process jobs were killed."""
    with holdfast.Holdfast(real_database.url) as app:
        made = tmp_path / "made"
        program = Program("worker", "--app", f"{MODULE}:app", "--run-commands", "on", url=real_database.url)
        try:
            program.said("slow_process")
            adding = Program("add", "--", "sh", "-c", f"sleep 1; touch {made}", url=real_database.url)
            assert adding.code == 0
            adding.close()

            def job(kind):
                app.job(kind)(lambda: None)
                return app.enqueue(kind)

            refs = [job("slow_process"), job("slow_thread")]
            assert [ref.wait(60).state for ref in refs] == [State.DONE] * 2
            wait_until(made.exists)
            program.send(signal.SIGTERM)
            code, err = program.end()
            assert (code, "finished" in err) == (0, True)
        finally:
            program.close()


def test_a_worker_is_notified_after_the_limit(real_database, limited):
    """Its listener went away, and it believed that it had one."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def quick() -> str:
            return "ran"

        with working(app, poll=3600):
            listener = wait_until(lambda: thread_named("holdfast-listener"))
            listener.join(5 * LIMIT_S)
            assert listener.is_alive()
            assert quick.enqueue().result(30) == "ran"


def test_a_ping_has_a_limit_of_its_own(limited):
    free = threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self):
            free.wait(5 * LIMIT_S)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert call(f"http://127.0.0.1:{server.server_address[1]}/") == 200
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.one_backend
def test_a_slow_scraper_is_served(real_database, limited):
    with holdfast.Holdfast(real_database.url) as app:
        server = MetricsServer("127.0.0.1:0", app.worker(), app.store)
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
                client.sendall(b"GET /livez HTTP/1.0\r\n")
                threading.Event().wait(5 * LIMIT_S)
                client.sendall(b"\r\n")
                assert client.recv(100).startswith(b"HTTP/1.0 ")
        finally:
            server.close()


def test_signals_arrive_after_the_limit(limited):
    """Issue 36, D2: the process ended when the socket that receives signals had a time limit."""
    received = threading.Event()
    with Signals(received.set, lambda: None):
        receiver = thread_named("holdfast-signals")
        receiver.join(5 * LIMIT_S)
        assert receiver.is_alive()
        os.kill(os.getpid(), signal.SIGTERM)
        assert received.wait(30)
