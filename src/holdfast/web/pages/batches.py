"""Batches: how far they are, what failed and why, and their units."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.actions.actions import BATCH_ACTIONS
from holdfast.admin.views.batches import BatchView, batch_secrets, batch_view, unit_clusters, unit_view
from holdfast.domain.access.masking import MASK, masked_json
from holdfast.domain.access.roles import SEARCHING, Role
from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, UnitState
from holdfast.domain.batches.sharding import sharding_of
from holdfast.domain.jobs.job import ControlRequest
from holdfast.web.pages.format import as_value
from holdfast.web.pages.request import PageRequest
from holdfast.worker.batches.owner import say as say_owner

PAGE, UNITS, ERRORS = 30, 50, 1000

#: What can be done to a batch in each state.
ACTIONS = {
    BatchState.READY: ("pause", "cancel"),
    BatchState.RUNNING: ("pause", "cancel"),
    BatchState.PAUSED: ("resume", "cancel"),
    BatchState.STOPPED: ("resume", "pause", "cancel"),
    BatchState.DONE: ("rm",),
    BatchState.PARTIAL: ("retry-failed", "rm"),
    BatchState.FAILED: ("retry-failed", "rm"),
    BatchState.CANCELLED: ("rm",),
}


class Far(Struct, frozen=True):
    """How far a batch is, how fast it goes, and when it may be through."""

    over: int
    share: float
    rate: float | None
    left: timedelta | None


def far(facts: BatchView, now: datetime) -> Far:
    """The share of units that have ended; while it runs, how many ended in a second since it began."""
    total = facts.summary.total
    over = total - facts.summary.pending - facts.summary.in_inbox
    share = over / total if total else 1.0 if facts.finished_at else 0.0
    rate = left = None
    if facts.state == BatchState.RUNNING and facts.started_at is not None and over:
        rate = over / max((now - facts.started_at).total_seconds(), 0.001)
        left = timedelta(seconds=(total - over) / rate)
    return Far(over, min(share, 1.0), rate, left)


def parts(facts: BatchView) -> list[tuple[str, int]]:
    """The stretches of a batch's bar."""
    told = facts.summary
    return [("good", told.succeeded), ("bad", told.failed + told.in_doubt), ("idle", told.skipped + told.cancelled)]


def shown_state(facts: BatchView) -> tuple[str, str]:
    """A batch's state as it is now, also between two: asked to pause, but units still run."""
    if facts.state == BatchState.RUNNING and facts.requested == ControlRequest.PAUSE:
        return "pausing", "pausing: what runs ends first"
    if facts.requested == ControlRequest.CANCEL and facts.state != BatchState.CANCELLED:
        return "cancelling", "cancelling: what runs ends first"
    return facts.state, facts.state


def batches(visit: PageRequest) -> Response:
    """Batches, the newest first."""
    before = visit.asked_number("before")
    found = visit.store.batches.page(limit=PAGE, **({} if before is None else {"before": BatchId(before)}))
    standings = visit.store.ledger.statuses([each.id for each in found]) if found else {}
    told = [batch_view(each, standings[each.id]) for each in found]
    return visit.page(
        "batches.html",
        "batches",
        batches=[(each, far(each, visit.now), parts(each), shown_state(each)) for each in told],
        next=found[-1].id if len(found) == PAGE else None,
        before=before,
        cli="holdfast batch ls",
    )


def batch(visit: PageRequest) -> Response:
    """One batch: progress, counters, clusters of errors, and a page of its units."""
    batch_id, ledger = BatchId(visit.id), visit.store.ledger
    found = visit.store.batches.get(batch_id)
    standing = ledger.statuses([batch_id])[batch_id]
    facts = batch_view(found, standing)
    failures = facts.summary.failed + facts.summary.in_doubt
    errors = ledger.errors(batch_id, limit=ERRORS) if failures else []
    state, label, text = _unit_state(visit), visit.asked("label") or None, visit.asked("text") or None
    if text is not None:
        visit.need(Role.OPERATOR, SEARCHING)
    page = ledger.page(batch_id, state=state, label=label, text=text, after=visit.asked("after"), limit=UNITS)
    return visit.page(
        "batch.html",
        "batches",
        batch=facts,
        state=shown_state(facts),
        far=far(facts, visit.now),
        parts=parts(facts),
        holders=[say_owner(holder.owner) for holder in standing.holders],
        command_line=(line := resume_line(found)),
        has_secrets=MASK in line,
        why=STOPPED[found.aborted_by] if found.aborted_by else "Paused by a person.",
        clusters=unit_clusters(found, errors),
        sampled=len(errors) < failures,
        failures=failures,
        units=[unit_view(unit, batch_secrets(found)) for unit in page.units],
        next=page.next,
        asked={"state": state, "label": label, "text": text},
        states=list(UnitState),
        actions=[action for action in ACTIONS[BatchState(facts.state)] if visit.may(BATCH_ACTIONS[action])],
        cli=f"holdfast batch show {batch_id}" if state is None else f"holdfast batch units {batch_id} --state {state}",
    )


def _unit_state(visit: PageRequest) -> UnitState | None:
    text = visit.asked("state")
    return UnitState(text) if text in UnitState._value2member_map_ else None


#: What stopped a run, in words.
STOPPED = {
    AbortedBy.SIGNAL: "Stopped by a signal.",
    AbortedBy.MAX_FAILURES: "Stopped: too many units failed in a row. Mend the cause first.",
    AbortedBy.MAX_TOTAL_FAILURES: "Stopped: too many units failed. Mend the cause first.",
    AbortedBy.MAX_FAILURE_RATE: "Stopped: too large a share of the units failed. Mend the cause first.",
    AbortedBy.DEADLINE: "Stopped: its time was up.",
    AbortedBy.PAUSE: "Paused by a person.",
    AbortedBy.CANCEL: "Cancelled by a person.",
    AbortedBy.FATAL: "Stopped by an error that ends everything. Mend the cause first.",
    AbortedBy.LIMIT: "Stopped: as many units as it was to take are over.",
    AbortedBy.LEASE_LOST: "Stopped: another run took it over.",
}


def resume_line(batch: Batch) -> str:
    """The command that lets a batch go on; empty where only those who began it know that."""
    if sharding_of(batch) is not None:
        return f"holdfast batch resume {batch.id}"
    if ":" not in batch.kind or not batch.source.startswith("range "):
        return ""
    told = masked_json(batch.arguments).items()
    given = [f"--set {shlex.quote(f'{name}={as_value(value)}')}" for name, value in told]
    words = ["holdfast batch run", shlex.quote(batch.kind), "--range", batch.source.removeprefix("range "), *given]
    return " ".join(words)


def act(visit: PageRequest) -> Response:
    """Do a verb to a batch."""
    action = visit.given("action")
    visit.need(BATCH_ACTIONS.get(action, Role.OPERATOR))
    if action in ("cancel", "rm") and not visit.given("sure"):
        return _ask(visit, action)
    done = visit.actions.batch(action, BatchId(visit.id))
    units = "" if done.units is None else f" {done.units:,} units."
    text = f"Batch {visit.id}: {SAID.get(action, action)}.{units}" if done.changed else f"{action}: nothing to do."
    return visit.done(text, "batches" if action == "rm" else f"batches/{visit.id}")


SAID = {
    "pause": "asked to pause; what runs ends first",
    "resume": "goes on",
    "cancel": "cancelled",
    "retry-failed": "its failed units run again",
    "rm": "removed",
}


def _ask(visit: PageRequest, action: str) -> Response:
    texts = {
        "cancel": "Every unit that has not ended becomes cancelled. One under way may finish, and its outcome counts.",
        "rm": "The batch is forgotten with its whole ledger.",
    }
    return visit.page(
        "sure.html",
        "batches",
        title=f"{action} batch {visit.id}?",
        text=texts[action],
        action=visit.to(f"batches/{visit.id}/act"),
        hidden={"action": action},
        ids=[],
        note=False,
        grave=True,
        button=f"{action} batch {visit.id}",
        back=visit.to(f"batches/{visit.id}"),
        cli=f"holdfast batch {action} {visit.id}",
    )


def units(visit: PageRequest) -> Response:
    """Retry or skip the failed units of one cluster; their count comes first."""
    action, cluster, batch_id = visit.given("action"), visit.given("cluster"), BatchId(visit.id)
    if not visit.given("sure"):
        count = visit.actions.units(action, batch_id, cluster, dry_run=True).units or 0
        return visit.page(
            "sure.html",
            "batches",
            title=f"{action} {count:,} units?",
            text=UNIT_TEXTS.get(action, ""),
            action=visit.to(f"batches/{visit.id}/units"),
            hidden={"action": action, "cluster": cluster},
            ids=[],
            note=False,
            grave=action == "skip",
            button=f"{action} {count:,} units",
            back=visit.to(f"batches/{visit.id}"),
            cli="",
        )
    done = visit.actions.units(action, batch_id, cluster)
    word = "run again" if action == "retry" else "are skipped"
    return visit.done(f"{done.units or 0:,} units {word}.", f"batches/{visit.id}")


UNIT_TEXTS = {
    "retry": "They run again with all their attempts: on workers at once, elsewhere with the next run.",
    "skip": "They are given up: they count as skipped, and no longer as failed.",
}
