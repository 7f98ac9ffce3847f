"""OpenAPI: endpoints, declared by typed functions, and the document that is generated from their types."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct

from holdfast import __version__
from holdfast.domain.access.roles import Role
from holdfast.domain.json_schema import schema_components
from holdfast.errors.http import HTTP_STATUSES
from holdfast.output.envelope import Envelope, Failure
from holdfast.web.api.descriptions import description_of

BASE = "/api/v1"
_TEXT = (
    "Every answer is an envelope: status, data, error, meta. Lists come in pages; use next of a page to request the "
    "following one. POST takes an Idempotency-Key: a request with the same key is carried out once within 24 hours."
)
_EVENTS = (
    "Server-sent events that name the parts of the store that have changed: jobs, batches, schedules, workers, queues, "
    "audit. The stream ends when its token is revoked."
)
JSON = "application/json"
_ENVELOPE = {"$ref": "#/components/schemas/Envelope"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_ID = {"name": "id", "in": "path", "required": True, "description": "The id.", "schema": _NUMBER}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request under the same key is carried out once.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}


@functools.cache
def build_document(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """Build the document once, when it is first read: it takes longer than the rest of the start."""
    types = [type_ for each in endpoints for type_ in (each.answer, each.query, each.body) if type_ is not None]
    types += [Envelope, Failure]
    schemas, components = schema_components(types, ref_template="#/components/schemas/{name}")
    _describe(components)
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in endpoints:
        path = BASE + re.sub(r":int\}", "}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, known, components)
    paths[f"{BASE}/events"] = _untyped("events", "Stream of changes.", _EVENTS, "text/event-stream", "string")
    paths[f"{BASE}/openapi.json"] = _untyped("openapi", "This description.", "OpenAPI 3.1.", JSON, "object")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__, "description": _TEXT},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _describe(components: dict[str, Any]) -> None:
    """Add the description of each property that has none of its own."""
    for type_name, component in components.items():
        for name, schema in component.get("properties", {}).items():
            text = description_of(type_name, name)
            if text is not None:
                schema.setdefault("description", text)


def _operation(each: Endpoint, known: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": each.text,
        "description": f"Needs the role {each.role}.",
        "operationId": f"{each.method.lower()}{re.sub(r'[^a-z]+', '_', each.path.replace(':int', ''))}".rstrip("_"),
        "parameters": [*([_ID] if "{id" in each.path else []), *_query_parameters(each, components)],
        "responses": {str(each.status): _answer(each, known[repr(each.answer)]), **_failures()},
    }
    if each.status != 200 and "dry_run" in getattr(each.body, "__struct_fields__", ()):
        operation["responses"]["200"] = _answer(each, known[repr(each.answer)])
    if each.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": known[repr(each.body)]}}}
        operation["parameters"].append(_KEY)
    return operation


def _query_parameters(each: Endpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    shape = components.get(each.query.__name__, {})
    required = shape.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": schema.get("description", ""),
            "schema": {key: value for key, value in schema.items() if key != "description"},
        }
        for name, schema in shape.get("properties", {}).items()
    ]


def _answer(each: Endpoint, schema: Any) -> dict[str, Any]:
    data = {"type": "object", "required": ["data"], "properties": {"data": schema}}
    return {"description": each.text, "content": {JSON: {"schema": {"allOf": [_ENVELOPE, data]}}}}


def _failures() -> dict[str, Any]:
    return {
        str(status): {"description": texts.description, "content": {JSON: {"schema": _ENVELOPE}}}
        for status, texts in HTTP_STATUSES.items()
    }


def _untyped(name: str, summary: str, text: str, media_type: str, schema_type: str) -> dict[str, Any]:
    """A path that no endpoint declares."""
    answer = {"description": text, "content": {media_type: {"schema": {"type": schema_type}}}}
    return {"get": {"summary": summary, "operationId": f"get_{name}", "responses": {"200": answer, **_failures()}}}


#: Entries on a page of a list.
MAX_PAGE_SIZE = 500

# Types of parameters.
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(max_length=200)]
Priority = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
ClusterKey = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint takes no parameters."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """An endpoint, as the signature of its handler declares it."""

    method: Literal["GET", "POST"]
    path: str
    text: str
    role: Role
    #: Status of a success; a dry run has 200.
    status: int
    query: Any
    body: Any
    answer: Any
    handler: Callable[..., Any]
    #: Names of the handler's parameters after the request: ``query``, ``body``, or that of the id in the path.
    parameters: tuple[str, ...]


def get(path: str) -> Callable[[Callable[..., Any]], Endpoint]:
    """Declare an endpoint that reads. Every caller may use it."""
    return _declare("GET", path, Role.VIEWER, 200)


def post(path: str, *, role: Role = Role.OPERATOR, status: int = 200) -> Callable[[Callable[..., Any]], Endpoint]:
    """Declare an endpoint that changes something."""
    return _declare("POST", path, role, status)


def _declare(
    method: Literal["GET", "POST"], path: str, role: Role, status: int
) -> Callable[[Callable[..., Any]], Endpoint]:
    """Read an endpoint from ``handler(request[, id][, query][, body]) -> answer`` and its docstring."""

    def declare(handler: Callable[..., Any]) -> Endpoint:
        types = get_type_hints(handler, include_extras=True)
        return Endpoint(
            method=method,
            path=path,
            text=inspect.getdoc(handler) or "",
            role=role,
            status=status,
            query=types.get("query", Nothing),
            body=types.get("body"),
            answer=types["return"],
            handler=handler,
            parameters=tuple(inspect.signature(handler).parameters)[1:],
        )

    return declare
