"""Refusals of ``web``; tests/web tests the server itself."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import timedelta
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from holdfast.cli.ops.web import print_link
from holdfast.cli.session import CliSession
from holdfast.domain.access.roles import Role
from holdfast.web.server import Server

pytestmark = pytest.mark.one_backend


def test_another_address_requires_a_token_first(run, app):
    """Exit 4, with a hint."""
    answer = run("web", "--listen", "0.0.0.0:0", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_CONFIG")
    assert "holdfast token add" in answer.document["error"]["hint"]
    assert run("web", "--listen", "nowhere").code == 2


def test_a_named_store_must_exist(run, tmp_path):
    """A misspelt name must not show an empty dashboard and leave a file behind."""
    answer = run("web", "--url", f"sqlite:///{tmp_path}/mispelt.db", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_MISSING")
    assert not (tmp_path / "mispelt.db").exists()


def test_without_the_extra_the_hint_names_it(run, app, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "holdfast.web.server", raising=False)
    answer = run("web", "-o", "json")
    assert answer.code == 4
    assert ".[web]" in answer.document["error"]["hint"]


def test_the_printed_link_signs_in(real_database):
    """E6.1: it prints its address and a link; the link signs in once; it ends with exit 0 after Ctrl-C."""
    with closing(real_database.open()) as store, served(real_database.url) as server:
        lines = [server.stderr.readline() for _ in range(2)]
        address = re.search(r"http://127\.0\.0\.1:\d+", lines[0]).group()
        link = re.search(rf"{address}/sign-in\?link=([\w-]+)", lines[1])
        person = Person(address)
        assert person.get("/healthz").status == 200
        assert person.get("/jobs").url.startswith(f"{address}/login")
        assert "Your name" in person.get(link[0].removeprefix(address)).read().decode()
        person.post("/sign-in", link=link[1], name="ada")
        assert person.get("/jobs").url == f"{address}/jobs"
        with pytest.raises(HTTPError, match="404"):
            Person(address).post("/sign-in", link=link[1], name="eve")
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert [(entry.actor, entry.action) for entry in store.audit_log.page()] == [("ada", "sign in")]


def test_a_key_for_changes_is_not_needed_to_look(real_database, monkeypatch):
    """HTTP is no way around the key of the command line: the link of whoever lacks it may only read."""
    monkeypatch.setenv("HOLDFAST_API_KEY_SHA256", hashlib.sha256(b"right").hexdigest())
    for key, role in (("wrong", "viewer"), ("right", "admin")):
        monkeypatch.setenv("HOLDFAST_API_KEY", key)
        with closing(real_database.open()) as store, served(real_database.url) as server:
            link = re.search(r"link=([\w-]+)", server.stderr.readline() + server.stderr.readline())[1]
            assert store.sessions.use_link(link, "ada", lifetime=timedelta(hours=1))[1] == role
            server.send_signal(signal.SIGINT)
            server.wait(60)


@pytest.mark.parametrize("journal", [True, False])
def test_a_journal_does_not_get_the_link(app, capfd, monkeypatch, journal):
    """Others may read it."""
    status = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}" if journal else "1:1")
    server = Server(app, "127.0.0.1:0")
    try:
        link = print_link(CliSession(), server)
    finally:
        server.close()
    assert (link is None) == journal
    assert ("holdfast token link" in capfd.readouterr().err) == journal


def test_a_link_comes_from_the_command_line_too(run, app):
    """It has its entry in the audit log."""
    answer = run("token", "link", "-o", "json")
    link = answer.data["link"]
    assert link.startswith("http://127.0.0.1:8320/sign-in?link=")
    cookie, role = app.store.sessions.use_link(link.partition("=")[2], "ada", lifetime=timedelta(hours=1))
    assert role is Role.ADMIN
    assert [(entry.action, entry.target) for entry in app.store.audit_log.page()] == [("token link", "link=admin")]
    assert run("token", "sign-out", "ada", "-o", "json").data == {"name": "ada", "sessions": 1}
    assert app.store.sessions.find(cookie) is None


def test_other_people_on_the_machine_do_not_see_an_opened_link(run, app, monkeypatch, tmp_path):
    """E6.1: the command line of a browser is public, and a link works once, for whoever is first."""
    opened = []
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", opened.append)
    for _ in range(2):
        link = run("token", "link", "--open", "-o", "json").data["link"]
        file = tmp_path / "holdfast" / "sign-in.html"
        assert opened.pop() == file.as_uri()
        assert link in file.read_text()
        assert file.stat().st_mode & 0o077 == 0


class Person:
    """Somebody with a browser that keeps cookies."""

    def __init__(self, address):
        self._address = address
        self._browser = build_opener(HTTPCookieProcessor())

    def get(self, path):
        return self._browser.open(f"{self._address}{path}", timeout=60)

    def post(self, path, **form):
        return self._browser.open(f"{self._address}{path}", urlencode(form).encode(), timeout=60)


@contextmanager
def served(url):
    command = [sys.executable, "-m", "holdfast", "web", "--listen", "127.0.0.1:0", "--url", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.kill()
