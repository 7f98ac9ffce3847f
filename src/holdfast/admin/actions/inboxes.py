"""Actions on inboxes: programs without Python, and people, consume the results of units."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.domain.names import checked_name
from holdfast.errors import InvalidInput, ResultLost
from holdfast.store.batches.inbox import RESULT_LEASE

#: Results that one call takes or settles.
MAX_RESULTS = 500


class TakenResult(Struct, frozen=True):
    """A result that the caller has now, as its unit handed it over. The *receipt* accepts or refuses it."""

    receipt: str
    batch: int
    key: Any
    value: Any


class SettledResults(Struct, frozen=True):
    """The receipts of results that were accepted or refused, and of those that the caller has lost."""

    action: str
    settled: list[str]
    lost: list[str]


class InboxActions:
    """Takes results out of inboxes, accepts and refuses them, and records each change."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    def take(self, inbox: str, *, limit: int = 1, lease: timedelta = RESULT_LEASE) -> list[TakenResult]:
        """Take results, the longest free first. No other consumer has them until the *lease* ends."""
        checked_name(inbox, label="the inbox")
        results = self._actions.audited("inbox take", f"inbox={inbox}").inbox
        decode = msgspec.json.decode
        return [
            TakenResult(f"{each.id}.{each.token}", each.batch_id, decode(each.key), decode(each.data))
            for each in results.take(inbox, limit=limit, lease_duration=lease)
        ]

    def accept(self, receipts: Sequence[str]) -> SettledResults:
        """Accept results: their units are done.

        Raises:
            ResultLost: The caller has lost all of them.
        """
        return self._settle("accept", receipts, None)

    def refuse(self, receipts: Sequence[str], error: str) -> SettledResults:
        """Refuse results: their units have failed, and run again with the next run of their batches.

        Raises:
            ResultLost: The caller has lost all of them.
        """
        return self._settle("refuse", receipts, error)

    def _settle(self, action: str, receipts: Sequence[str], error: str | None) -> SettledResults:
        tokens = dict(map(_parse_receipt, receipts))
        target = f"results={','.join(map(str, tokens))}"
        ids = self._actions.audited(f"inbox {action}", target, note=error).inbox.settle(tokens, error)
        known = {f"{number}.{tokens[number]}" for number in ids}
        settled = [receipt for receipt in receipts if receipt in known]
        if not settled:
            hint = "Take it again: another consumer has it, or it expired."
            raise ResultLost(f"{action}: the caller has none of these results", hint=hint)
        return SettledResults(action, settled, [receipt for receipt in receipts if receipt not in settled])


def _parse_receipt(receipt: str) -> tuple[int, int]:
    number, _, token = receipt.partition(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (number, token)):
        raise InvalidInput(f"{receipt[:40]!r} is not a receipt", hint="holdfast inbox take prints them: 17.2.")
    return int(number), int(token)
