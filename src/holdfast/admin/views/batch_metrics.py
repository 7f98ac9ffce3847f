"""Metrics of batches, their units and inboxes, read from the store: also of changes that no worker makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client.core import Metric

from holdfast.admin.views.batches import batch_secrets
from holdfast.domain.access.masking import mask_text
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import LABEL, UnitState
from holdfast.store import Store
from holdfast.store.batches.queries import COUNTED_BATCHES
from holdfast.worker.store_metrics import gauge

#: Counters of finished units, and of those that wait in an inbox. The others are notes about the same units.
RESULTS = frozenset({*UnitState, "in_inbox"} - {UnitState.PENDING, UnitState.RUNNING})


def batch_metrics(store: Store) -> Iterator[Metric]:
    """Batches by state, units by result and by label, of the newest 1,000 batches; results in inboxes."""
    # Every state has a value, also 0: an increase from a missing one would be invisible.
    counts = store.ledger.count_batches()
    batches = [((str(state),), float(counts.get(state, 0))) for state in BatchState]
    yield gauge("store_batches", "Batches by state, of the newest 1,000.", ["state"], batches)
    units: Counter[tuple[str, ...]] = Counter()
    labels: Counter[tuple[str, ...]] = Counter()
    newest = store.batches.page(limit=COUNTED_BATCHES).batches
    secrets = {secret for batch in newest for secret in batch_secrets(batch)}
    units.update({(kind, result): 0 for kind in sorted({batch.kind for batch in newest}) for result in sorted(RESULTS)})
    for total in store.ledger.count_units():
        if total.name.startswith(LABEL):
            labels[total.kind, mask_text(total.name.removeprefix(LABEL), secrets)] += total.count
        elif total.name in RESULTS:
            units[total.kind, total.name] += total.count
    text = "Finished units, and those whose results wait in an inbox, of the newest 1,000 batches."
    yield gauge("store_units", text, ["function", "result"], units.items())
    text = "Units by their label, of the newest 1,000 batches."
    yield gauge("store_unit_labels", text, ["function", "label"], labels.items())
    yield from _inbox_metrics(store)


def _inbox_metrics(store: Store) -> Iterator[Metric]:
    now, inboxes = datetime.now(UTC), store.inbox.depths()
    depth = [((each.inbox, "taken"), float(each.taken)) for each in inboxes]
    depth += [((each.inbox, "free"), float(each.results - each.taken)) for each in inboxes]
    yield gauge("store_inbox_depth", "Results in an inbox, counted up to 10,000.", ["inbox", "state"], depth)
    ages = [
        ((each.inbox,), 0.0 if each.free_since is None else (now - each.free_since).total_seconds()) for each in inboxes
    ]
    yield gauge("store_inbox_oldest_free_seconds", "How long the oldest free result has waited.", ["inbox"], ages)
