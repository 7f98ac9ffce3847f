"""Kinds that applications have published, so that every process knows their defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.jobs.kind import suggest_kind
from holdfast.domain.jobs.kind_options import KindOptions, PublishedKind, load_options
from holdfast.errors import UnknownKind
from holdfast.store.engine.operation import Noun, Operation, query, read, transaction


class Kinds(Noun):
    """Published kinds, by name."""

    def publish(self, kinds: list[PublishedKind]) -> None:
        """Publish kinds, or update them; an unchanged kind costs no write."""
        changed = self._changed(kinds)
        if changed:
            self._publish(changed)

    def publish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """Publish kinds in the caller's transaction."""
        self._backend.run_on(connection, self._publish_changed(kinds))

    async def apublish_on(self, connection: Any, kinds: list[PublishedKind]) -> None:
        """Publish kinds in the caller's transaction on an async connection."""
        await self._backend.arun_on(connection, self._publish_changed(kinds))

    @transaction()
    def _publish(self, kinds: list[PublishedKind]) -> Operation[None]:
        for kind in sorted(kinds, key=lambda kind: kind.name):
            yield query("publish_kind", **msgspec.structs.asdict(kind))

    @read
    def _changed(self, kinds: list[PublishedKind]) -> Operation[list[PublishedKind]]:
        changed = []
        for kind in kinds:
            rows = yield query("get_kind", PublishedKind, name=kind.name)
            if rows != [kind]:
                changed.append(kind)
        return changed

    def _publish_changed(self, kinds: list[PublishedKind]) -> Operation[None]:
        changed = yield from Kinds._changed.operation(self, kinds)
        yield from Kinds._publish.operation(self, changed)

    def names(self) -> list[str]:
        return [row[0] for row in self._backend.fetch(query("list_kind_names"))]

    def all(self, *, limit: int = 10_000) -> list[PublishedKind]:
        """All published kinds, by name."""
        return self._backend.fetch(query("list_kinds", PublishedKind, limit=limit))

    def get(self, name: str) -> PublishedKind:
        """A published kind.

        Raises:
            UnknownKind: No application has published it; the hint names the most similar kind.
        """
        rows: list[PublishedKind] = self._backend.fetch(query("get_kind", PublishedKind, name=name))
        if not rows:
            raise UnknownKind(
                f"no application has registered kind {name!r}", hint=suggest_kind(name, self.names()), kind=name
            )
        return rows[0]

    def options(self, name: str) -> KindOptions:
        """The defaults for jobs of a kind."""
        kind = self.get(name)
        return load_options(kind.options, version=kind.version)
