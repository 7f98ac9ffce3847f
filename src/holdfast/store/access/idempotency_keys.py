"""Idempotency keys: requests that a client may send again."""

from __future__ import annotations

from msgspec import Struct

from holdfast.store.engine.operation import Noun, query


class StoredResponse(Struct, frozen=True):
    """The response to a request with a key."""

    digest: str
    status: int
    body: str


class IdempotencyKeys(Noun):
    """Responses by credential and key.

    The key is claimed, the request runs and its response is kept in one transaction: see
    :meth:`holdfast.store.Store.single_transaction`. No other transaction sees a key without its response.
    """

    def claim(self, credential: str, key: str, digest: str) -> StoredResponse | None:
        """Claim a key. None: the request is new, run it. Otherwise the response to the earlier request.

        If another transaction has claimed the key, this one waits until that ends.
        """
        while True:
            values = {"credential": credential, "key": key}
            if self._backend.run(query("claim_idempotency_key", digest=digest, **values)):
                return None
            rows: list[StoredResponse] = self._fetch("get_idempotency_key", StoredResponse, **values)
            if rows:
                return rows[0]

    def keep(self, credential: str, key: str, status: int, body: str) -> None:
        """Store the response to a claimed request."""
        values = {"credential": credential, "key": key, "status": status, "body": body}
        self._backend.run(query("complete_idempotency_key", **values), repeatable=True)
