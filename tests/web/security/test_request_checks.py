"""Request checks: host, method, origin, size, headers, and hostile input."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import Selector
from holdfast.web.security.failed_tries import FailedTries
from holdfast.web.security.request_checks import HEADERS
from tests.web.conftest import HOST, Client, all_routes

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


def test_every_change_refuses_invalid_requests(site, tokens, app):
    """A wrong method, host, origin, site, token or size changes nothing, and the API answers with an envelope."""
    good = {"authorization": f"Bearer {tokens[Role.ADMIN]}", "content-type": "application/json"}
    for path, methods in all_routes(site):
        if "POST" not in methods or path in ("/login", "/sign-in"):
            continue
        wrong = {
            "method": ("PUT", {}, 405),
            "delete": ("DELETE", {}, 405),
            "host": ("POST", {"host": "evil.example"}, 421),
            "hosts": ("POST", {"host": "localhost.evil.example"}, 421),
            "origin": ("POST", {"origin": "http://evil.example"}, 403),
            "null origin": ("POST", {"origin": "null"}, 403),
            "port": ("POST", {"origin": "http://localhost:81"}, 403),
            "site": ("POST", {"sec-fetch-site": "cross-site"}, 403),
            "sister": ("POST", {"sec-fetch-site": "same-site"}, 403),
            "token": ("POST", {"authorization": "Bearer hf_00000000_" + "a" * 43}, 401),
            "scheme": ("POST", {"authorization": "Basic cm9vdDpyb290"}, 401),
            "large": ("POST", {"content-length": str(2**30)}, 413),
        }
        site.authenticator.failed_tries = FailedTries()  # wrong tokens are limited
        for name, (method, headers, status) in wrong.items():
            answer = Client(site).request(method, path, headers={**good, **headers})
            assert answer.status_code == status, (name, path, answer.text)
            if path.startswith("/api/"):
                assert answer.json()["error"]["code"], (name, path)
    assert app.store.audit_log.page() == []


def test_every_answer_carries_the_headers(site, viewer):
    """Also refusals. Browsers and proxies cache nothing."""
    for answer in (viewer.get("/api/v1/me"), viewer.get("/nothing"), viewer.get("/", headers={"host": "evil.example"})):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "host",
    [
        "evil@localhost",
        "localhost@evil.example",
        "localhost:80@evil.example",
        "localhost:x",
        "[::1]x",
        "localhost/",
        "",
    ],
)
def test_a_host_is_a_name_and_a_port(site, host):
    """E6.5: anything else is refused."""
    assert Client(site).get("/login", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["10.1.2.3:8320", "web.pod.cluster.local", "localhost"])
def test_probes_may_use_any_name(site, host):
    """E6.6: Kubernetes asks for the address of the pod. Other paths stay closed to such names."""
    for path in ("/healthz", "/readyz"):
        assert Client(site).get(path, headers={"host": host}).status_code == 200
    assert (Client(site).get("/login", headers={"host": host}).status_code == 421) == (host != "localhost")


HOSTILE = [
    "'; DROP TABLE holdfast_job; --",
    '" OR 1=1 --',
    "%' OR '%'='",
    "\\'; SELECT pg_sleep(9); --",
    "../../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "<script>alert(1)</script>",
    "${7*7}{{7*7}}",
    "a\r\nSet-Cookie: x=1",
    "\u202eevil",
    "x" * 1900,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_only_text(admin, app, text):
    """In filters, names, labels and notes: it is stored or refused, never executed."""
    for path, query in (
        ("/jobs", {"filter": f"label={text}"}),
        ("/jobs", {"filter": text}),
        ("/schedule", {"name": text}),
        ("/audit-log", {"actor": text[:200]}),
        ("/batches/1/units", {"text": text[:200]}),
    ):
        answer = admin.get(f"/api/v1{path}", params=query)
        assert answer.status_code in (200, 400, 404), (path, answer.text)
        assert "set-cookie" not in answer.headers
    placed = admin.post("/api/v1/jobs", json={"kind": "mail", "payload": {"to": 1}, "label": text, "key": text})
    assert placed.status_code in (201, 400)
    admin.change("/queues/action", queue="q", action="pause", create=True, note=text)
    assert admin.read("/queues")["queues"]
    assert app.views.count(Selector()).count == (placed.status_code == 201)


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fetc/passwd",
        "/static/..%2f..%2fserver.py",
        "/api/v1/%00",
        "/api/v1/jobs/1%0d%0aX: y",
        "//evil.example/",
    ],
)
def test_paths_lead_nowhere(viewer, path):
    answer = viewer.get(f"{HOST}{path}")
    assert answer.status_code in (303, 400, 404), answer.text
    assert "root:" not in answer.text


def test_a_body_may_not_lie_about_its_length(site, tokens):
    """The body is counted as it arrives."""

    def parts():
        for _ in range(40):
            yield b"x" * 65536

    headers = {"authorization": f"Bearer {tokens[Role.ADMIN]}", "content-type": "application/json"}
    answer = Client(site).post("/api/v1/jobs", content=parts(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "E_TOO_LARGE")


def test_unreadable_input_is_refused(admin, site):
    """An invalid origin, a form with too many fields, and ids beyond 63 bits."""
    assert admin.post("/api/v1/queues/action", json={}, headers={"origin": "http://["}).status_code == 403
    fields = {f"field{n}": "x" for n in range(30)}
    assert Client(site).post("/login", data=fields).status_code == 400
    for number in ("9" * 5000, str(2**63)):
        for path in (f"/jobs/{number}", f"/batches/{number}", f"/api/v1/jobs/{number}", f"/api/v1/batches/{number}"):
            assert admin.get(path).status_code == 404, path[:40]
        for path in (f"/batches/{number}/action", f"/batches/{number}/units", f"/jobs/{number}/action"):
            assert admin.post(path).status_code == 404, path[:40]
    assert admin.get(f"/jobs/{2**63 - 1}").status_code == 404
