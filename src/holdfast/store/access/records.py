"""Acts that people did, credentials by which they are let in, and what servers keep for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.access.roles import AuditEntry, Credential, Role, Via, draw_token
from holdfast.domain.jobs.filter import parse_filter
from holdfast.domain.jobs.job import JobId
from holdfast.domain.text import checked_actor, checked_name, clean_text
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import query

#: Acts that one page looks at when it is filtered.
WINDOW = 5000
NEWEST = 2**62
MAX_TARGET, MAX_NOTE, MAX_FILTER = 500, 1000, 2000
#: Saved filters that are shown.
FILTERS = 200
SESSION = "session"


class AuditLog:
    """What people did, from wherever. Only retention removes an act."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def write(
        self,
        action: str,
        target: str,
        *,
        actor: str,
        via: Via,
        count: int | None = None,
        note: str | None = None,
    ) -> int:
        """Write down what was done; answers the number of the act."""
        checked_actor(actor)
        told = {"target": clean_text(target, limit=MAX_TARGET), "count": count}
        text = None if note is None else clean_text(note, limit=MAX_NOTE)
        rows = self._backend.run(query("insert_audit_entry", actor=actor, via=via, action=action, note=text, **told))
        number: int = rows[0][0]
        return number

    def page(
        self, *, before: int = NEWEST, limit: int = 50, actor: str | None = None, text: str | None = None
    ) -> list[AuditEntry]:
        """Acts, the newest first. With a filter it looks at 5,000 of them, so that it never takes long."""
        window = limit if actor is None and text is None else WINDOW
        told = {"before": before, "limit": limit, "window": window, "actor": actor, "text": text}
        return self._backend.look(query("list_audit_entries", AuditEntry, **told))


class AccessState(Struct, frozen=True):
    """What a request at the door needs to know. *locked*: a credential was made once, even if it is revoked."""

    locked: bool
    secret: str | None
    prefix: str | None
    name: str | None
    role: Role | None
    salt: str | None
    hash: str | None
    revoked_at: datetime | None


class Credentials:
    """Tokens. Each has a name of its own while it is not revoked."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def add(self, name: str, role: Role, *, actor: str) -> str:
        """Make a token and answer it; nobody can see it again.

        Raises:
            Conflict: There is a token of this name.
        """
        checked_name(name, what="the name")
        checked_actor(name)
        drawn = draw_token()
        told = {"prefix": drawn.prefix, "salt": drawn.salt, "hash": drawn.hash}
        if not self._backend.run(query("insert_credential", name=name, role=role, actor=checked_actor(actor), **told)):
            raise Conflict(f"there is a token {name!r} already", hint="Take another name, or revoke that one first.")
        return drawn.text

    def list(self) -> list[Credential]:
        """All tokens, revoked ones too, the oldest first."""
        return self._backend.look(query("list_credentials", Credential))

    def revoke(self, name: str) -> Credential:
        """Let a token, by its name or prefix, open nothing any more, from the next request on.

        Raises:
            NotFound: There is none.
        """
        rows: list[Credential] = self._backend.run(query("revoke_credential", Credential, name=name))
        if not rows:
            raise NotFound(f"there is no token {name[:100]!r}", hint="holdfast token ls lists them.")
        return rows[0]

    def used(self, prefix: str) -> None:
        """Note that a token is in use, to the minute."""
        self._backend.run(query("touch_credential", prefix=prefix), repeatable=True)

    def door(self, prefix: str | None) -> AccessState:
        """All that is to be known when somebody knocks with a token of this prefix, or with none."""
        rows: list[AccessState] = self._backend.look(query("get_access_state", AccessState, prefix=prefix))
        return rows[0]

    def session_secret(self, draw: str) -> str:
        """What signs sessions on all servers of this store: *draw*, unless one was kept before."""
        rows = self._backend.look(query("get_secret", name=SESSION))
        if not rows:
            self._backend.run(query("insert_secret", name=SESSION, value=draw), repeatable=True)
            rows = self._backend.look(query("get_secret", name=SESSION))
        kept: str = rows[0][0]
        return kept


class SavedFilter(Struct, frozen=True):
    """A filter that somebody wants to find again."""

    name: str
    filter: str
    actor: str
    created_at: datetime


class SavedFilters:
    """Saved filters, shared by all who look at the store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def save(self, name: str, text: str, *, actor: str) -> None:
        """Keep a filter under a name; one of this name is replaced.

        Raises:
            InvalidInput: The filter cannot be read.
        """
        checked_name(name, what="the name")
        if len(text) > MAX_FILTER:
            raise InvalidInput(f"a filter has at most {MAX_FILTER:,} characters")
        parse_filter(text)
        self._backend.run(query("save_filter", name=name, filter=text, actor=checked_actor(actor)), repeatable=True)

    def drop(self, name: str) -> None:
        """Forget a filter.

        Raises:
            NotFound: There is none of this name.
        """
        if not self._backend.run(query("delete_filter", name=name)):
            raise NotFound(f"there is no filter {name[:100]!r}")

    def list(self) -> list[SavedFilter]:
        """The first 200 by name."""
        return self._backend.look(query("list_filters", SavedFilter, limit=FILTERS))


class StoredResponse(Struct, frozen=True):
    """The answer to a request that carried a key; without a status it is still under way."""

    digest: str
    status: int | None
    body: str | None


class IdempotencyKeys:
    """Answers by credential and key, so that a request that is sent twice is carried out once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def claim(self, credential: str, key: str, digest: str) -> StoredResponse | None:
        """None: nobody has sent this before, carry it out; otherwise what became of it."""
        while True:
            told = {"credential": credential, "key": key}
            if self._backend.run(query("claim_idempotency_key", digest=digest, **told)):
                return None
            rows: list[StoredResponse] = self._backend.look(query("get_idempotency_key", StoredResponse, **told))
            if rows:
                return rows[0]

    def keep(self, credential: str, key: str, status: int, body: str) -> None:
        """Keep the answer to a request that was claimed."""
        told = {"credential": credential, "key": key, "status": status, "body": body}
        self._backend.run(query("complete_idempotency_key", **told), repeatable=True)

    def drop(self, credential: str, key: str) -> None:
        """Forget a claim that led to nothing, so that it may be tried again."""
        self._backend.run(query("release_idempotency_key", credential=credential, key=key), repeatable=True)


class Traces:
    """Where the traces of jobs began."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def of(self, job_id: JobId) -> str | None:
        """The W3C trace context that a job was enqueued with."""
        rows: Sequence[tuple[str]] = self._backend.look(query("get_trace", id=job_id))
        return rows[0][0] if rows else None


#: Answers are kept for so long.
ANSWERS_FOR = timedelta(hours=24)
