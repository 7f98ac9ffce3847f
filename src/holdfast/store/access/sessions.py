"""Sessions of people in browsers, and the links that open them. All servers of the store share them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import draw_secret, hash_secret
from holdfast.domain.names import checked_actor
from holdfast.errors import Conflict, NotFound
from holdfast.store.engine.operation import Noun, Operation, Query, query, transaction


class Session(Struct, frozen=True):
    """A session of a person. *hash* stands for its cookie; *prefix* is that of the token which opened it, if any."""

    hash: str
    name: str
    role: Role
    prefix: str | None


class Sessions(Noun):
    """Sessions. The store keeps the hash of a cookie, never the cookie."""

    def open(self, name: str, role: Role, *, lifetime: timedelta, prefix: str | None = None) -> str:
        """Open a session and return its cookie. The session of a token ends with the token, too."""
        cookie = draw_secret()
        self._insert(_insertion(cookie, checked_actor(name), role, lifetime, prefix=prefix))
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, unless it has expired or was signed out of, or its token was revoked."""
        rows: list[Session] = self._fetch("get_session", Session, hash=hash_secret(cookie))
        return rows[0] if rows else None

    def list_current(self, hashes: Sequence[str], prefixes: Sequence[str]) -> set[str]:
        """Those of some sessions, by hash, and of some tokens, by prefix, that are valid now."""
        return {row[0] for row in self._fetch("list_current_access", hashes=list(hashes), prefixes=list(prefixes))}

    def close(self, session_hash: str) -> None:
        """Sign out: from now on no server accepts the cookie."""
        self._backend.run(query("delete_session", hash=session_hash), repeatable=True)

    def close_all(self, name: str) -> int:
        """Sign a person out of all sessions; returns their number."""
        return len(self._backend.run(query("delete_sessions_of", name=name)))

    def add_link(self, role: Role, *, lifetime: timedelta) -> str:
        """Create a link: the first person who uses it gets a session with this role."""
        link = draw_secret()
        self._insert(_insertion(link, "", role, lifetime, is_link=True))
        return link

    @transaction()
    def _insert(self, insertion: Query) -> Operation[list[tuple[str]]]:
        """Insert a session or a link. Expired ones go: workers, which prune everything else, have no access to them."""
        yield query("prune_sessions")
        return (yield insertion)

    @transaction()
    def use_link(self, link: str, name: str, *, lifetime: timedelta) -> Operation[tuple[str, Role]]:
        """Turn a link into a session of *name*, once; returns the cookie and the role.

        Raises:
            NotFound: The link has expired, was used, or never existed.
            Conflict: *name* is that of a token: audit entries could not distinguish them.
        """
        cookie = draw_secret()
        if (yield query("get_credential_named", name=name)):
            raise Conflict(f"{name!r} is the name of a token", hint="Take another name, or sign in with that token.")
        rows = yield query("use_link", hash=hash_secret(link))
        if not rows:
            raise NotFound("this link has expired or was used", hint="Make a new one: holdfast token link")
        role = Role(rows[0][0])
        yield _insertion(cookie, checked_actor(name), role, lifetime)
        return cookie, role


def _insertion(
    secret: str, name: str, role: Role, lifetime: timedelta, *, prefix: str | None = None, is_link: bool = False
) -> Query:
    values = {"hash": hash_secret(secret), "name": name, "role": role, "prefix": prefix}
    return query("insert_session", is_link=is_link, lifetime=lifetime, **values)
