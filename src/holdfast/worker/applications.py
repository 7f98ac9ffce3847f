"""The applications of this process. A child process finds its handlers through them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import NewJob


class Application(Protocol):
    """The part of an application that a child process uses."""

    def find_kind(self, name: str) -> Kind | None: ...

    def request(self, kind: str, payload: Mapping[str, Any], options: dict[str, Any]) -> NewJob: ...


#: Weak references: an unused application can be collected.
APPLICATIONS: weakref.WeakSet[Application] = weakref.WeakSet()
