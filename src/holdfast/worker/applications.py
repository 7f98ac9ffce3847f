"""The applications of this process: a child process looks up its handlers here."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import NewJob


class Application(Protocol):
    """What a child process needs of an application."""

    def find_kind(self, name: str) -> Kind | None:
        """A kind by its name, kinds that run units included."""
        ...

    def request(self, kind: str, payload: Mapping[str, Any], options: dict[str, Any]) -> NewJob:
        """The job that an enqueue with these options would create."""
        ...


#: Weak references: an application that nobody uses any more is not kept alive.
APPLICATIONS: weakref.WeakSet[Application] = weakref.WeakSet()
