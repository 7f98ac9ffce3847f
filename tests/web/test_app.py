"""The site inside other applications, and its cost for applications without it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.domain.access.roles import Role
from tests.web.conftest import Client

pytestmark = pytest.mark.one_backend


def in_starlette(site):
    return Starlette(routes=[Mount("/ops/jobs", site)])


def in_fastapi(site):
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/ops/jobs", site)
    return outer


def in_django(site):
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], USE_TZ=True)
    from django.core.asgi import get_asgi_application

    inner = get_asgi_application()

    async def application(scope, receive, send):
        if scope["type"] == "http" and scope["path"].startswith("/ops/jobs"):
            await site({**scope, "root_path": "/ops/jobs"}, receive, send)
        elif scope["type"] == "http":
            await inner(scope, receive, send)

    return application


urlpatterns = []


@pytest.mark.parametrize("mount", [in_starlette, in_fastapi, in_django])
def test_it_works_below_a_path(site, tokens, mount):
    """The API, its errors and the login page work below the mount path."""
    client = Client(mount(site), tokens[Role.VIEWER])
    assert client.get("/ops/jobs/api/v1/me").json()["data"]["name"] == "viewer"
    assert client.get("/ops/jobs/api/v1/openapi.json").json()["servers"] == [{"url": "/ops/jobs"}]
    missing = client.get("/ops/jobs/api/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "E_NOT_FOUND")
    wrong = client.post("/ops/jobs/api/v1/me")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "E_METHOD")
    anonymous = Client(mount(site))
    assert anonymous.get("/ops/jobs/").headers["location"].startswith("/ops/jobs/login?next=")
    entered = anonymous.post("/ops/jobs/login", data={"token": tokens[Role.VIEWER]})
    assert entered.headers["location"] == "/ops/jobs/"
    assert "Path=/ops/jobs" in entered.headers["set-cookie"]


def test_the_dashboard_loads_nothing_that_runs_jobs():
    """Its first page waits for every module that is imported before."""
    code = "import sys, holdfast.cli.ops.web, holdfast.web.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.removeprefix("holdfast.worker.") for name in done.stdout.split()}
    assert not loaded & {"worker", "executors", "commands.executor", "batches.driver", "autoscaler", "run_lifecycle"}


def test_a_worker_loads_none_of_it():
    """Neither the site nor the packages of the extra."""
    code = (
        "import sys, holdfast; from holdfast.worker.worker import Worker; import holdfast.cli.ops.worker, holdfast.web;"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"starlette", "uvicorn", "jinja2", "anyio", "opentelemetry", "holdfast.web.app"}
