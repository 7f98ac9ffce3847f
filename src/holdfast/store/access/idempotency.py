"""Idempotency keys: a request that is sent twice runs once."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.store.engine.operation import Noun, query

#: How long a response is stored.
RESPONSE_RETENTION = timedelta(hours=24)


class StoredResponse(Struct, frozen=True):
    """The response to a request with a key; without a status the request is still in progress."""

    digest: str
    status: int | None
    body: str | None


class IdempotencyKeys(Noun):
    """Responses by credential and key."""

    def claim(self, credential: str, key: str, digest: str) -> StoredResponse | None:
        """Claim a key. None: the request is new, run it. Otherwise the response to the earlier request."""
        while True:
            values = {"credential": credential, "key": key}
            if self._backend.run(query("claim_idempotency_key", digest=digest, **values)):
                return None
            rows: list[StoredResponse] = self._backend.fetch(query("get_idempotency_key", StoredResponse, **values))
            if rows:
                return rows[0]

    def keep(self, credential: str, key: str, status: int, body: str) -> None:
        """Store the response to a claimed request."""
        values = {"credential": credential, "key": key, "status": status, "body": body}
        self._backend.run(query("complete_idempotency_key", **values), repeatable=True)

    def release(self, credential: str, key: str) -> None:
        """Release a key whose request failed, so that it can be sent again."""
        self._backend.run(query("release_idempotency_key", credential=credential, key=key), repeatable=True)
