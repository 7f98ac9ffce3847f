"""Actions on inboxes: programs without Python, and people, consume the results of units."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.actions.actions import TargetActions
from holdfast.admin.actions.changed import Changed, Unchanged
from holdfast.admin.actions.table import Action, Target
from holdfast.domain.names import checked_name
from holdfast.errors import ResultLost
from holdfast.store.batches.inbox import RESULT_LEASE, parse_receipt

#: Results that one call takes or settles.
MAX_RESULTS = 500
#: The error of units whose results were refused without a reason.
REFUSED = "refused by its consumer"


class TakenResult(Struct, frozen=True):
    """A result that the caller has now, as its unit handed it over. The *receipt* accepts or refuses it."""

    receipt: str
    batch: int
    key: Any
    value: Any


class InboxActions(TargetActions):
    """Takes results out of inboxes, accepts and refuses them, and records each change."""

    target = Target.RESULT

    def take(self, inbox: str, *, limit: int = 1, lease: timedelta = RESULT_LEASE) -> list[TakenResult]:
        """Take results, the longest free first. No other consumer has them until the *lease* ends."""
        checked_name(inbox, label="the inbox")
        results = self._actions.audited("result take", f"inbox={inbox}").inbox
        decode = msgspec.json.decode
        return [
            TakenResult(each.receipt, each.batch_id, decode(each.key), decode(each.data))
            for each in results.take(inbox, limit=limit, lease_duration=lease)
        ]

    def run(
        self, action: Action, receipts: Sequence[str], *, note: str | None = None, inbox: str | None = None
    ) -> Changed:
        """Accept results, or refuse them: then *note* is the error of their units.

        With an *inbox*, results of all others count as lost.

        Raises:
            ResultLost: The caller has lost all of them.
        """
        tokens = dict(map(parse_receipt, receipts))
        error = None if action.name == "accept" else note or REFUSED
        target = f"results={','.join(map(str, tokens))}"
        numbers = self._actions.audited(action.audit_name, target, note=error).inbox.settle(tokens, error, inbox=inbox)
        known = [f"{number}.{token}" for number, token in tokens.items()]
        settled = [f"{number}.{token}" for number, token in tokens.items() if number in numbers]
        if not settled:
            hint = "Take it again: another consumer has it, or it expired."
            raise ResultLost(f"{action.name}: the caller has none of these results", hint=hint)
        lost: list[int | str] = [receipt for receipt in known if receipt not in settled]
        return Changed(
            action=action.name,
            target=action.target,
            matched=len(known),
            changed=len(settled),
            ids=list(settled),
            unchanged=[Unchanged(action.exception, len(lost), lost)] if lost else [],
            dry_run=self._actions.is_dry_run,
        )
