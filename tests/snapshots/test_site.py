"""Snapshots of every answer of the HTTP API, and of every page."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.web import asgi
from holdfast.web.pages.routes import ACTIONS
from holdfast.web.pages.routes import PAGES as LOOKS
from tests.snapshots.conftest import Scenery
from tests.snapshots.files import check, check_names
from tests.snapshots.fixed import Clock, fixed
from tests.snapshots.plain import main_part, plain, pretty_html, pretty_json
from tests.snapshots.requests import API, PAGES, Ask

BASE = "/api/v1"
#: Headers that every answer is shown with. The first answer of a file is shown with all but these, and its page as a
#: whole; so are pages for others than an admin. Of all other pages the main part is shown: the rest is the same.
HEADERS = ("content-type", "location", "set-cookie", "retry-after", "idempotent-replay", "www-authenticate")
TRANSPORT = ("content-length", "content-encoding", "vary")
#: Pages that are no part of the table of pages: health, and the way in and out.
OTHERS = {
    *("GET /healthz", "GET /readyz", "GET /metrics", "GET /live"),
    *("GET /login", "POST /login", "GET /sign-in", "POST /sign-in", "POST /logout"),
}


class Site:
    """The site on one copy of the store."""

    def __init__(self, site: Any, scenery: Scenery) -> None:
        address = ("127.0.0.1", 50000)
        self.client = TestClient(site, base_url="http://localhost", follow_redirects=False, client=address)
        self._site = site
        self._tokens = scenery.tokens
        self._words = {f"{{{role}}}": token for role, token in scenery.tokens.items()}

    def send(self, method: str, ask: Ask, base: str) -> Any:
        """The answer to one request."""
        self.client.cookies.clear()
        headers = {**self._door(ask.role), **ask.headers}
        if isinstance(ask.body, str):
            return self.client.request(method, base + ask.path, content=ask.body, headers=headers)
        body = self._filled(ask.body)
        if base or body is None:
            return self.client.request(method, base + ask.path, json=body, headers=headers)
        if ask.role is not None:
            body = {"form_token": self._form_token(headers), **body}
        return self.client.request(method, ask.path, data=body, headers=headers)

    def _door(self, role: str | None) -> dict[str, str]:
        """The headers of somebody with a role; who has a session signs in first."""
        if role is None:
            return {}
        if role == "session":
            assert self.client.post("/login", data={"token": self._tokens["admin"]}).status_code == 303
            return {}
        return {"authorization": f"Bearer {self._tokens[role]}"}

    def _form_token(self, headers: dict[str, str]) -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', self.client.get("/jobs", headers=headers).text)
        return found[1] if found else ""

    def _filled(self, body: Any) -> Any:
        """The body with the words in braces filled in."""
        if body is None:
            return None
        return {name: self._word(value) if isinstance(value, str) else value for name, value in body.items()}

    def _word(self, text: str) -> str:
        if text in ("{errors}", "{units}"):
            path = "/errors" if text == "{errors}" else "/batches/1"
            answer = self.client.get(f"{BASE}{path}", headers=self._door("admin"))
            return str(answer.json()["data"]["clusters"][0]["key"])
        if text == "{link}":
            return str(self._site.app.store.sessions.add_link(Role.ADMIN, lifetime=timedelta(hours=1)))
        return self._words.get(text, text)


@pytest.fixture
def sites(scenery: Scenery, tmp_path: Path) -> Callable[[], Any]:
    """Opens the site on a fresh copy of the store."""

    @contextmanager
    def opened() -> Iterator[Site]:
        home = tmp_path / "home"
        scenery.copy(home)
        with fixed(home, Clock(scenery.clock.at)), holdfast.Holdfast("sqlite:///jobs.db") as app:
            site = Site(asgi(app), scenery)
            with site.client:
                yield site

    return opened


def file_of(name: str) -> str:
    """``GET /jobs/{id:int}/log`` is ``get-jobs-id-log``; the first page is ``get-start``."""
    words = re.findall(r"\w+", name.lower().replace(":int", ""))
    return "-".join(words if len(words) > 1 else [*words, "start"])


def test_every_endpoint_has_requests(sites):
    """Add requests for a new endpoint to tests/snapshots/requests.py."""
    with sites() as site:
        described = site.send("GET", Ask("/openapi.json"), BASE).json()["paths"]
    known = {f"{method.upper()} {path.removeprefix(BASE)}" for path, found in described.items() for method in found}
    assert set(API) == known


def test_every_page_has_requests():
    """Add requests for a new page to tests/snapshots/requests.py."""
    known = {f"GET {path}" for path in LOOKS} | {f"POST {path}" for path in ACTIONS}
    assert set(PAGES) == known | OTHERS


def test_every_endpoint_has_a_snapshot():
    check_names("api", {file_of(name) for name in API})


def test_every_page_has_a_snapshot():
    check_names("pages", {file_of(name) for name in PAGES})


@pytest.mark.parametrize("name", API, ids=file_of)
def test_an_endpoint_answers_as_before(name, sites, tmp_path):
    check("api", file_of(name), _told(name, API[name], BASE, sites, tmp_path))


@pytest.mark.parametrize("name", PAGES, ids=file_of)
def test_a_page_looks_as_before(name, sites, tmp_path):
    check("pages", file_of(name), _told(name, PAGES[name], "", sites, tmp_path))


def _told(name: str, asks: tuple[Ask, ...], base: str, sites: Callable[[], Any], folder: Path) -> str:
    """All requests of a file with their answers."""
    method = name.partition(" ")[0]
    parts: list[str] = []
    for ask, answer in _answers(method, asks, base, sites):
        parts.append(_text(method, ask, base, answer, full=not parts))
    return plain("\n".join(parts), folder / "home")


def _answers(method: str, asks: tuple[Ask, ...], base: str, sites: Callable[[], Any]) -> Iterator[tuple[Ask, Any]]:
    """Each request with its answer. What follows a change is sent to a fresh copy of the store."""
    left = deque(asks)
    while left:
        with sites() as site:
            changed = False
            while left and not changed:
                ask = left.popleft()
                answer = site.send(method, ask, base)
                yield ask, answer
                tried = isinstance(ask.body, dict) and ask.body.get("dry_run")
                changed = method == "POST" and answer.is_success | answer.is_redirect and not tried


def _text(method: str, ask: Ask, base: str, answer: Any, *, full: bool) -> str:
    """One request and its answer as the snapshot has them."""
    lines = [f"> {method} {base}{ask.path} as {ask.role or 'nobody'}"]
    lines += [f"> {header}: {value}" for header, value in ask.headers.items()]
    if ask.body is not None:
        lines.append(f"> {ask.body if isinstance(ask.body, str) else json.dumps(ask.body)}")
    lines.append(str(answer.status_code))
    shown = sorted(answer.headers.multi_items())
    lines += [f"{each}: {value}" for each, value in shown if each in HEADERS or (full and each not in TRANSPORT)]
    kind = answer.headers.get("content-type", "")
    shape = pretty_json if "json" in kind else pretty_html if "html" in kind else str
    text = shape(answer.text).rstrip()
    if "html" in kind and not full and ask.role == "admin":
        text = main_part(text)
    return "\n".join([*lines, *([text] if text else [])]) + "\n"
