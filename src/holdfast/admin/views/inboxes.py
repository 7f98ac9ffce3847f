"""Views of inboxes and the results in them, with secrets masked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.admin.views.batches import batch_secrets
from holdfast.domain.access.masking import mask_json
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.unit import InboxDepth
from holdfast.errors import NoSuchBatch
from holdfast.store import Store


class InboxResultView(Struct, frozen=True):
    """A result in an inbox. *taken*: a consumer has it until *available_at*; its unit fails at *expires_at*.

    The *receipt* of a free result accepts or refuses it without a take.
    """

    batch: int
    key: Any
    value: Any
    taken: bool
    available_at: datetime
    expires_at: datetime
    receipt: str | None


def list_inboxes(store: Store) -> list[InboxDepth]:
    """All inboxes that hold a result, by name."""
    return store.inbox.depths()


def list_results(store: Store, inbox: str, *, limit: int = 50) -> list[InboxResultView]:
    """The results in an inbox, the longest free first. This takes none of them."""
    rows = store.inbox.results(inbox, limit=limit)
    secrets = {batch_id: _secrets_of(store, batch_id) for batch_id in {row.batch_id for row in rows}}
    return [
        InboxResultView(
            batch=row.batch_id,
            key=mask_json(row.key, values=secrets[row.batch_id]),
            value=mask_json(row.data, values=secrets[row.batch_id]),
            taken=row.taken,
            available_at=row.available_at,
            expires_at=row.expires_at,
            receipt=None if row.taken else f"{row.id}.{row.token}",
        )
        for row in rows
    ]


def _secrets_of(store: Store, batch_id: BatchId) -> list[str]:
    """The secret values in the arguments of a batch; none if it was deleted."""
    try:
        return batch_secrets(store.batches.get(batch_id))
    except NoSuchBatch:
        return []
