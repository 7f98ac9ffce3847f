"""The server behind real proxies and with TLS: the recipes of the guide, and a proxy that knows nothing of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import ConfigurationError
from tests.support.processes import wait_until

pytestmark = pytest.mark.one_backend

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serving.md"
PEM = Path(__file__).parents[1] / "support" / "localhost.pem"
NAME = "jobs.example.com"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CADDY = shutil.which("caddy")


def required(program, name):
    # On a developer's machine it may be missing; in CI `make services` has installed it.
    missing = program is None and "CI" not in os.environ
    return pytest.mark.skipif(missing, reason=f"{name} is not installed (make services)")


@pytest.fixture
def start(make_server):
    """Starts a server, and stops it after the test."""
    started = []

    def start(**options):
        server = make_server("127.0.0.1:0", **options)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


class Browser:
    """A person at a port of this machine, by HTTP or HTTPS."""

    def __init__(self, port, *, tls=False, host=None):
        self.port, self.tls, self.host = port, tls, host or f"localhost:{port}"
        self.cookie = None

    def send(self, method, path, form=None, **headers):
        """The status, the headers and the body of an answer."""
        with self.open(method, path, form, **headers) as answer:
            return SimpleNamespace(status=answer.status, headers=answer.headers, body=answer.read().decode())

    @contextmanager
    def open(self, method, path, form=None, **headers):
        context = ssl.create_default_context(cafile=PEM)
        context.check_hostname = False
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        connection = kind("127.0.0.1", self.port, timeout=60, **({"context": context} if self.tls else {}))
        headers = {"Host": self.host, **headers} | ({"Cookie": self.cookie} if self.cookie else {})
        if form is not None:
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://{self.host}"}
        connection.request(method, path, None if form is None else urlencode(form), headers)
        with closing(connection):
            yield connection.getresponse()

    def text(self, path):
        answer = self.send("GET", path)
        assert answer.status == 200, answer.status
        return answer.body

    def sign_in(self, token):
        answer = self.send("POST", "/login", {"token": token, "next": "/"})
        assert answer.status == 303, answer.body
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return self.cookie


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


def recipe(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[number]


@contextmanager
def running(command, port):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_until(lambda: _listens(port) or process.poll() is not None)
            assert process.poll() is None, process.stdout.read()
            yield port
        finally:
            process.terminate()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def nginx(folder, server, port):
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(
        f"{user} worker_processes 1; daemon off; pid {folder}/pid; error_log stderr; events {{}}"
        f" http {{ access_log off; {paths} {server} }}"
    )
    return running([NGINX, "-p", str(folder), "-c", str(config)], port)


@contextmanager
def default_proxy(target):
    """A proxy as nginx is without settings: it replaces Host by its target, and says nothing about the client."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client):
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        wanted = int((re.search(rb"(?i)content-length: (\d+)", head) or [0, b"0"])[1])
        while len(body) < wanted:
            body += client.recv(65536)
        lines = [line for line in head.split(b"\r\n") if not re.match(rb"(?i)(host|connection):", line)]
        lines[1:1] = [f"Host: 127.0.0.1:{target}".encode(), b"Connection: close"]
        with client, socket.create_connection(("127.0.0.1", target), timeout=60) as server:
            server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            while data := server.recv(65536):
                client.sendall(data)

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def attack(port, app):
    """What a stranger tried through a default proxy."""
    stranger = Browser(port, host="dashboard.example")
    for path in ("/", "/jobs", "/audit-log"):
        assert stranger.send("GET", path).headers["Location"].startswith("/login")
    command = json.dumps({"kind": "command", "payload": {"argv": ["id"], "cwd": "/"}})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/api/v1/jobs", command, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 401
    assert app.views.count(Selector()).count == 0
    assert app.store.audit_log.page() == []


def test_a_stranger_behind_a_default_proxy_is_nobody(start, app):
    """E6.1: the proxy comes from the loopback, asks for 127.0.0.1 and sends no header of its own."""
    with default_proxy(start().port) as port:
        attack(port, app)


@required(NGINX, "nginx")
def test_a_stranger_behind_a_default_nginx_is_nobody(start, app, tmp_path):
    """E6.1: the same with the real one."""
    port, target = free_port(), f"http://127.0.0.1:{start().port}"
    with nginx(tmp_path, f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {target}; }} }}", port):
        attack(port, app)


def use(browser, app):
    """Sign in, read a page, change something by a form, and hear of it."""
    cookie = browser.sign_in(app.store.credentials.add("ada", Role.OPERATOR, actor="root"))
    assert cookie.startswith("__Host-holdfast_session=")
    token = re.search(r'name="form_token" value="([^"]+)"', browser.text("/queues"))[1]
    with browser.open("GET", "/live") as stream:
        assert stream.readline().startswith(b"retry:")
        form = {"action": "pause", "form_token": token, "note": "deploy"}
        assert browser.send("POST", "/queues/action?name=default", form).status == 303
        assert app.store.queues.get("default").paused
        while b"queues" not in (line := stream.readline()):
            if line.startswith(b":"):  # the first poll came after the change: make another one
                app.store.queues.pause(f"queue {time.monotonic()}", note="again")
    link = app.store.sessions.add_link(Role.ADMIN, lifetime=timedelta(minutes=1))
    assert browser.send("POST", "/sign-in", {"link": link, "name": "eve"}).status == 403


@required(NGINX, "nginx")
def test_the_recipe_for_nginx(start, app, tmp_path):
    """Signing in, forms and live pages work. A sign-in link does not: it is for the server's own machine."""
    port, server = free_port(), start(hosts=[NAME], secure=True)
    text = (
        recipe("nginx")
        .replace("listen 443", f"listen 127.0.0.1:{port}")
        .replace("127.0.0.1:8320", f"127.0.0.1:{server.port}")
    )
    text = re.sub(r"(ssl_certificate\w*) \S+;", rf"\1 {PEM};", text)
    with nginx(tmp_path, text, port):
        use(Browser(port, tls=True, host=NAME), app)


@required(CADDY, "Caddy")
def test_the_recipe_for_caddy(start, app, tmp_path):
    port, server = free_port(), start(hosts=[NAME], secure=True)
    text = recipe("caddy").replace("127.0.0.1:8320", f"127.0.0.1:{server.port}")
    text = text.replace(f"{NAME} {{", f"https://{NAME}:{port} {{\n    bind 127.0.0.1\n    tls {PEM} {PEM}", 1)
    config = tmp_path / "Caddyfile"
    config.write_text(
        f"{{\n    admin off\n    auto_https disable_redirects\n    storage file_system {tmp_path}\n}}\n{text}"
    )
    with running([CADDY, "run", "--adapter", "caddyfile", "--config", str(config)], port):
        use(Browser(port, tls=True, host=NAME), app)


@required(NGINX, "nginx")
def test_nginx_replaces_the_name_of_a_person(start, app, tmp_path):
    """E6.4: with the lines of the guide a client cannot name itself."""
    server = start(hosts=[NAME], proxy_header="X-User", proxy_from=["127.0.0.1"], proxy_role="operator")
    port, lines = free_port(), recipe("nginx", 1)
    text = f"listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{server.port}; {lines} }}"
    with nginx(tmp_path, f"server {{ {text} }}", port):
        for headers in ({"X-User": "root"}, {"X-User": "root", "x-user": "ada"}, {"X_User": "root"}):
            assert Browser(port).send("GET", "/api/v1/me", **headers).status == 401


def test_the_server_speaks_tls(start, app):
    """E6.1: with a certificate and a key; cookies are bound to the host."""
    server = start(tls=(str(PEM), str(PEM)))
    assert server.url == f"https://127.0.0.1:{server.port}"
    browser = Browser(server.port, tls=True)
    assert browser.text("/healthz") == "ok\n"
    cookie = browser.sign_in(app.store.credentials.add("ada", Role.VIEWER, actor="root"))
    assert cookie.startswith(f"__Host-holdfast_session-{server.port}=")
    assert "Overview" in browser.text("/")
    with pytest.raises((OSError, http.client.HTTPException)):
        Browser(server.port).send("GET", "/healthz")


def test_a_certificate_that_cannot_be_read_is_an_error(make_server, tmp_path):
    (tmp_path / "cert.pem").write_text("nothing")
    for cert in ("cert.pem", "none.pem"):
        with pytest.raises(ConfigurationError, match="certificate"):
            make_server("127.0.0.1:0", tls=(str(tmp_path / cert), str(PEM)))
