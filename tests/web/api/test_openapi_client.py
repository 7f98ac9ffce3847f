"""A client that a generator makes of the document, and what the document says for generators and their users."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from datetime import datetime

import httpx
import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import Selector
from holdfast.web.api.openapi import build_document
from holdfast.web.api.router import ENDPOINTS

#: The document does not depend on the backend.
pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The package that openapi-python-client makes. A warning of the generator is a failure."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(build_document(ENDPOINTS)))
    (folder / "config.yaml").write_text("post_hooks: []\n")
    program = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
    files = ["--path", "openapi.json", "--config", "config.yaml", "--output-path", "generated_client"]
    done = subprocess.run([*program, *files], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module("generated_client")
    sys.path.remove(str(folder))


@pytest.fixture
def call(generated, site, tokens):
    """Calls an operation of the generated client, and returns the parsed answer."""

    def call(name, role=Role.OPERATOR, **values):
        operation = importlib.import_module(f"generated_client.api.default.{name}")

        async def send():
            client = generated.AuthenticatedClient(base_url="http://localhost", token=tokens[role])
            transport = httpx.ASGITransport(app=site)
            headers = {"Authorization": f"Bearer {tokens[role]}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
                client.set_async_httpx_client(http)
                return await operation.asyncio_detailed(client=client, **values)

        return asyncio.run(send())

    return call


def test_a_generated_client_works(call, generated, app):
    """E6.7: it enqueues, lists, acts and reads errors, with types."""
    models = importlib.import_module("generated_client.models")
    payload = models.EnqueueBodyPayload.from_dict({"to": 7})
    placed = call("post_jobs", body=models.EnqueueBody(kind="mail", payload=payload, label="mine")).parsed
    assert (placed.data.created, placed.data.kind) == (True, "mail")
    page = call("get_jobs", filter_="label=mine").parsed
    assert [job.id for job in page.data.jobs] == [placed.data.id]
    assert isinstance(page.data.jobs[0].created_at, datetime)
    held = call("post_jobs_action", body=models.JobActionBody(action="hold", filter_="label=mine")).parsed
    assert (held.data.matched, held.data.changed) == (1, 1)
    assert call("get_me").parsed.data.role == "operator"
    missing = call("get_jobs_id", id=999)
    assert (missing.status_code, missing.parsed.error.code) == (404, "E_NO_SUCH_JOB")
    refused = call("post_jobs_action", Role.VIEWER, body=models.JobActionBody(action="hold", filter_="label=mine"))
    assert (refused.status_code, refused.parsed.error.code) == (403, "E_FORBIDDEN")
    assert app.views.count(Selector()).count == 1


def test_everything_is_described():
    """E6.7: types, properties and parameters. Write new ones into holdfast/web/api/descriptions.py."""
    document = build_document(ENDPOINTS)
    schemas = document["components"]["schemas"]
    missing = [name for name, schema in schemas.items() if not schema.get("description")]
    missing += [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, inner in schema.get("properties", {}).items()
        if not inner.get("description")
    ]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    missing += [
        f"{operation['operationId']} {parameter['name']}"
        for operation in operations
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    ]
    assert missing == []


def test_generators_understand_every_schema():
    """E6.7: no schema is a bare true or false, and every timestamp says that it is one."""

    def walk(value, path):
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in ("items", "schema") or path.endswith("/properties"):
                    assert isinstance(inner, dict), f"{path}/{name}"
                if path.endswith("/properties") and name.endswith("_at") and "string" in json.dumps(inner):
                    assert "date-time" in json.dumps(inner) or "maxLength" in json.dumps(inner), f"{path}/{name}"
                walk(inner, f"{path}/{name}")
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, f"{path}/{number}")

    walk(build_document(ENDPOINTS), "")
