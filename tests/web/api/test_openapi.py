"""Generated requests: no request breaks the API."""

from __future__ import annotations

from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from holdfast.domain.access.roles import Role

#: The requests do not depend on the backend.
pytestmark = pytest.mark.one_backend

EXAMPLES = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_no_request_breaks_the_api(site, tokens, app):
    """Some valid and invalid requests per operation of the document: none has a 5xx answer."""
    app.enqueue("mail", {"to": 1})
    app.schedules.create("s", "mail", "@daily", payload={"to": 1})
    headers = {"authorization": f"Bearer {tokens[Role.ADMIN]}", "host": "localhost"}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", site, headers=headers)
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):
            continue

        for mode in GenerationMode:

            @EXAMPLES
            @given(case=operation.as_strategy(generation_mode=mode))
            def one(case):
                nonlocal tried
                tried += 1
                case.call_and_validate(headers=headers, checks=(not_a_server_error,))

            with suppress(Unsatisfiable):  # without parameters there is no invalid request
                one()
    assert tried > 50
