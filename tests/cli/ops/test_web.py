"""Refusals of ``web``; tests/web tests the server itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

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
    assert "holdfast[web]" in answer.document["error"]["hint"]


def test_it_serves_until_it_is_interrupted(real_database):
    """It prints its address, answers there, and ends with exit 0 after Ctrl-C."""
    real_database.open()
    command = [sys.executable, "-m", "holdfast", "web", "--listen", "127.0.0.1:0", "--url", real_database.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline()).group()
        with urllib.request.urlopen(f"{address}/healthz") as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
