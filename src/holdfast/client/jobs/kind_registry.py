"""The kinds of an application: their options, their registry."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from holdfast.domain.jobs.job import OnLost
from holdfast.domain.jobs.json_values import MAX_PAYLOAD
from holdfast.domain.jobs.kind import Kind, suggest_kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions, PublishedKind
from holdfast.domain.jobs.new_job import KeyScope
from holdfast.domain.jobs.retry_curve import Curve, retry_curve
from holdfast.domain.jobs.upgrade import Upgrade
from holdfast.domain.quantities import Duration, as_bytes, as_duration
from holdfast.errors import InvalidKind, UnknownKind
from holdfast.settings import load_settings
from holdfast.store import Store, open_store


class KindFollower(Protocol):
    """A worker, as the registry sees it."""

    def serve(self, kind: Kind, /) -> None: ...


#: Of kinds that Holdfast makes itself: a namespace of this name would meet them.
_RESERVED_NAMESPACES = ("holdfast", "shard", "unit")


def checked_namespace(name: str) -> str:
    """Return *name* if it can be a namespace."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,49}", name):
        hint = "It has up to 50 letters, digits, - and _, and begins with a letter."
        raise InvalidKind(f"{name!r} cannot be a namespace", hint=hint)
    if name in _RESERVED_NAMESPACES:
        raise InvalidKind(f"the namespace {name!r} is reserved", hint="Use the name of the application.")
    return name


class KindRegistry:
    """The kinds of one application and the store that they are published to.

    The store opens on first use, and publishes kinds that it does not know yet.
    """

    def __init__(
        self,
        url: str | None,
        *,
        max_payload: int = MAX_PAYLOAD,
        application: object = None,
        name: str | None = None,
        namespace: str | None = None,
    ) -> None:
        #: The name of the application; None if it has none.
        self.name = name
        self._prefix = "" if namespace is None else f"{checked_namespace(namespace)}."
        #: The URL that the application was created with; None until a default is resolved.
        self.configured_url = url
        self.max_payload = max_payload
        # Handlers hold the registry, so they keep their application alive: child processes look it up by kind.
        self._application = application
        self.kinds: dict[str, Kind] = {}
        #: The kinds by name and by alias.
        self.by_any_name: dict[str, Kind] = {}
        self.lock = threading.RLock()
        self._unpublished: set[str] = set()
        self._store: Store | None = None
        #: The store whose schema was compared, for its first worker.
        self._compared: Store | None = None
        #: Workers that run kinds which are registered later.
        self.followers: weakref.WeakSet[KindFollower] = weakref.WeakSet()
        _REGISTRIES.add(self)

    @property
    def url(self) -> str:
        if self.configured_url is None:
            self.configured_url = load_settings().url
        return self.configured_url

    def use(self, url: str | None, store: Store | None) -> None:
        """Switch to another store, to which all kinds are published again."""
        with self.lock:
            self.close()
            self.configured_url = url
            self._store = store
            self._unpublished = set(self.kinds)

    def store(self) -> Store:
        """The open store, with all kinds published."""
        store = self._store
        if store is not None and not self._unpublished:
            return store
        with self.lock:
            store = self._bare_store()
            if self._unpublished:
                store.kinds.publish(self.unpublished())
                self._unpublished.clear()
            return store

    def store_beside(self) -> Store:
        """The open store, for an enqueue in a transaction of the caller, which may last.

        Kinds are published by a transaction of their own: other processes would wait for the caller's. With one
        writer at a time it is the other way round, and the caller's transaction publishes what :meth:`unpublished`
        returns.
        """
        with self.lock:
            store = self._bare_store()
            return store if store.backend.single_writer else self.store()

    def _bare_store(self) -> Store:
        """The open store, without publishing kinds."""
        with self.lock:
            if self._store is None:
                self._store = open_store(self.url)
            return self._store

    def migrated_store(self) -> Store:
        """The open store of a worker: an older schema is migrated, and one that this code cannot use is refused.

        Raises:
            SchemaMismatch: The schema is not the one of its version.
            StoreMoved: Another store has taken its place.
        """
        with self.lock:
            store = self._store or open_store(self.url, may_migrate=True)
            try:
                if store is not self._compared:
                    store.database.require_schema()
                store.database.refuse_moved()
            except BaseException:
                if self._store is None:
                    store.close()
                raise
            self._store = self._compared = store
            return self.store()

    def unpublished(self) -> list[PublishedKind]:
        """The kinds that the store does not have yet."""
        kinds = [self.kinds[name] for name in sorted(self._unpublished)]
        return [kind.published(name) for kind in kinds for name in kind.names]

    def add(self, kind: Kind) -> Kind:
        """Register a kind under a name that is free."""
        with self.lock:
            self._refuse_taken(kind)
            self.kinds[kind.name] = kind
            self.by_any_name |= dict.fromkeys(kind.names, kind)
            self._unpublished.add(kind.name)
            followers = list(self.followers)
        if followers:
            self.store()  # publishes it
        for follower in followers:
            follower.serve(kind)
        return kind

    def _refuse_taken(self, kind: Kind) -> None:
        hint = "Give one of the two another name."
        if kind.name in self.kinds:
            raise InvalidKind(f"the kind {kind.name!r} is registered already", hint=hint)
        if len(set(kind.names)) < len(kind.names):
            raise InvalidKind(f"kind {kind.name!r} has the same alias twice, or its own name as an alias")
        for name in kind.names:
            if (other := self.by_any_name.get(name)) is not None:
                raise InvalidKind(f"{name!r} names two kinds: {other.name!r} and {kind.name!r}", hint=hint)

    def prefixed(self, name: str) -> str:
        """The name of a kind, a schedule or a unit function on the store: with the namespace of the application."""
        return f"{self._prefix}{name}"

    def kind(self, name: str) -> Kind:
        """A registered kind by name or alias, with or without its namespace; the hint of an error names the nearest."""
        known = self.by_any_name.get(self.prefixed(name)) or self.by_any_name.get(name)
        if known is None:
            raise UnknownKind(f"this app has no kind {name!r}", hint=suggest_kind(name, list(self.kinds)), kind=name)
        return known

    def close(self) -> None:
        """Close the store, if it is open; the next use opens it again."""
        with self.lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def unlock(self) -> None:
        """Replace the lock in a forked child: a thread that does not exist here may hold it."""
        self.lock = threading.RLock()


_REGISTRIES: weakref.WeakSet[KindRegistry] = weakref.WeakSet()


def _unlock_registries() -> None:
    for registry in list(_REGISTRIES):
        registry.unlock()


os.register_at_fork(after_in_child=_unlock_registries)


class JobArguments(TypedDict, total=False):
    """The options of :meth:`holdfast.Holdfast.job`, which explains them."""

    queue: str
    priority: int
    max_attempts: int | None
    max_crashes: int | None
    retry: Curve | Sequence[Duration] | None
    on_lost: str
    timeout: Duration | None
    lease: Duration
    unique: Sequence[str]
    unique_for: Duration | None
    version: int
    upgrade: Mapping[int, Upgrade] | None
    aliases: Sequence[str]
    executor: str | None
    memory: int | str | None
    secrets: Sequence[str]


def handler_options(
    *,
    retry: Curve | Sequence[Duration] | None = None,
    on_lost: str = "retry",
    timeout: Duration | None = "1h",
    lease: Duration = "60s",
    unique: Sequence[str] = (),
    unique_for: Duration | None = None,
    aliases: Sequence[str] = (),
    executor: str | None = None,
    memory: int | str | None = None,
    secrets: Sequence[str] = (),
    **options: Any,
) -> KindOptions:
    """Convert the arguments of ``app.job``; :class:`KindOptions` takes the other *options* as they are."""
    if on_lost not in tuple(OnLost):
        raise InvalidKind(f"on_lost is 'retry', 'dead' or 'hold', not {on_lost!r}")
    if executor not in (None, ExecutorName.THREAD, ExecutorName.ASYNC, ExecutorName.PROCESS):
        raise InvalidKind(f"executor is 'thread', 'async' or 'process', not {executor!r}")
    if isinstance(secrets, str):  # iterating it would yield its characters
        raise InvalidKind("secrets is a list of names", hint=f"Write secrets=[{secrets!r}].")
    if isinstance(aliases, str):
        raise InvalidKind("aliases is a list of names", hint=f"Write aliases=[{aliases!r}].")
    period = None if unique_for is None or unique_for == "ever" else as_duration(unique_for)
    unending = KeyScope.LIVE if unique_for is None else KeyScope.FOREVER
    return KindOptions(
        retry=retry_curve(retry),
        on_lost=OnLost(on_lost),
        timeout=None if timeout is None else as_duration(timeout),
        lease=as_duration(lease),
        unique=tuple(unique),
        unique_scope=unending if period is None else KeyScope.PERIOD,
        unique_period=period,
        executor=None if executor is None else ExecutorName(executor),
        memory=None if memory is None else as_bytes(memory),
        secrets=tuple(secrets),
        aliases=tuple(aliases),
        **options,
    )
