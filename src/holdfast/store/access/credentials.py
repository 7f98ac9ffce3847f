"""Credentials: tokens of people and programs, and the secret of servers."""

from __future__ import annotations

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import Credential, draw_secret, draw_token
from holdfast.domain.names import checked_actor, checked_name
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Noun, query

SERVER_SECRET = "form"  # noqa: S105 - the name of a secret


class Credentials(Noun):
    """Tokens. No two valid tokens have the same name."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._server_secret: str | None = None

    def add(self, name: str, role: Role, *, actor: str, inbox: str | None = None) -> str:
        """Create a token and return it; it cannot be read again. With an *inbox* it may use no other part of the store.

        Raises:
            Conflict: A valid token of this name exists.
            InvalidInput: The token of an inbox is that of an admin.
        """
        if inbox is not None and role is Role.ADMIN:
            raise InvalidInput("a token that is limited to an inbox is a viewer or an operator, not an admin")
        checked_name(name, label="the name")
        checked_actor(name)
        drawn = draw_token()
        values = {"prefix": drawn.prefix, "hash": drawn.hash}
        if not self._backend.run(
            query("insert_credential", name=name, role=role, inbox=inbox, actor=checked_actor(actor), **values)
        ):
            raise Conflict(f"there is a token {name!r} already", hint="Take another name, or revoke that one first.")
        return drawn.text

    def list(self) -> list[Credential]:
        """All tokens, oldest first, revoked ones included."""
        return self._fetch("list_credentials", Credential)

    def revoke(self, name: str) -> Credential:
        """Revoke a token, by its name or prefix, from the next request on.

        Raises:
            NotFound: No valid token has this name or prefix.
        """
        rows: list[Credential] = self._backend.run(query("revoke_credential", Credential, name=name))
        if not rows:
            raise NotFound(f"there is no token {name[:100]!r}", hint="holdfast token ls lists them.")
        return rows[0]

    def record_use(self, prefix: str) -> None:
        """Record when a token was used, to the minute."""
        self._backend.run(query("touch_credential", prefix=prefix), repeatable=True)

    def find(self, prefix: str) -> Credential | None:
        """The valid token with this prefix."""
        rows: list[Credential] = self._fetch("get_valid_credential", Credential, prefix=prefix)
        return rows[0] if rows else None

    def exist(self) -> bool:
        """Whether anybody has a valid token."""
        return bool(self._fetch("has_valid_credential")[0][0])

    def server_secret(self) -> str:
        """The secret with which all servers of this store sign forms and seal cursors. It never changes."""
        if self._server_secret is None:
            rows = self._fetch("get_secret", name=SERVER_SECRET)
            if not rows:
                self._backend.run(query("insert_secret", name=SERVER_SECRET, value=draw_secret()), repeatable=True)
                rows = self._fetch("get_secret", name=SERVER_SECRET)
            self._server_secret = str(rows[0][0])
        return self._server_secret
