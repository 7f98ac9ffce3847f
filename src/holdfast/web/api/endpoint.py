"""Endpoints of the API, declared by typed functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct

from holdfast.domain.access.roles import Role

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
    """Nothing is asked beyond the address."""


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
    parameters: tuple[str, ...]

    def call(self, request: Any, *, number: int, query: Any, body: Any) -> Any:
        """Call the handler with those parameters that it declares."""
        values = {"query": query, "body": body}
        return self.handler(request, *(values.get(name, number) for name in self.parameters))


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
