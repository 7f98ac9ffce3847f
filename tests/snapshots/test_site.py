"""Snapshots of every answer of the HTTP API, and of every page."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.web.pages.routes import ACTIONS
from holdfast.web.pages.routes import PAGES as LOOKS
from tests.snapshots.files import check, check_names
from tests.snapshots.plain import main_part, plain, pretty_html, pretty_json
from tests.snapshots.requests import API, PAGES, Ask
from tests.snapshots.site import BASE

#: Headers that every answer is shown with. The first answer of a file is shown with all but these, and its page as a
#: whole; so are pages for others than an admin. Of all other pages the main part is shown: the rest is the same.
HEADERS = ("content-type", "location", "set-cookie", "retry-after", "idempotent-replay", "www-authenticate")
TRANSPORT = ("content-length", "content-encoding", "vary")
#: Pages that are no part of the table of pages: health, and the way in and out.
OTHERS = {
    *("GET /healthz", "GET /readyz", "GET /metrics", "GET /live"),
    *("GET /login", "POST /login", "GET /sign-in", "POST /sign-in", "POST /logout"),
}


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
