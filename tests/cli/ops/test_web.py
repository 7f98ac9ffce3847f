"""``holdfast web``: what it refuses; that it serves is told in tests/web."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.one_backend


def test_another_address_needs_a_token_first(run, app):
    """Exit 4, with what to do next."""
    answer = run("web", "--listen", "0.0.0.0:0", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_CONFIG")
    assert "holdfast token add" in answer.document["error"]["hint"]
    assert run("web", "--listen", "nowhere").code == 2


def test_a_store_that_is_named_has_to_be_there(run, tmp_path):
    """A misspelt name would show an empty dashboard, and leave a file behind."""
    answer = run("web", "--url", f"sqlite:///{tmp_path}/mispelt.db", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_MISSING")
    assert not (tmp_path / "mispelt.db").exists()


def test_without_the_extra_it_says_what_to_install(run, app, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "holdfast.web.server", raising=False)
    answer = run("web", "-o", "json")
    assert answer.code == 4
    assert "holdfast[web]" in answer.document["error"]["hint"]
