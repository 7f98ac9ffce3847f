"""The pages of batches and their units."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.actions.batches import UnitCluster
from holdfast.admin.actions.table import Target
from holdfast.admin.views.batches import BatchReader, BatchView, list_batches
from holdfast.domain.access.masking import MASK
from holdfast.domain.access.roles import TEXT_SEARCH, Role
from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState
from holdfast.domain.batches.batch_filter import batch_filter
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.job import ControlRequest
from holdfast.web.pages.action import ActionForm, notice, offered
from holdfast.web.pages.format import as_value
from holdfast.web.request import Request
from holdfast.worker.batches.conflicts import describe_owner

#: Batches on a page, units on a page, events of a batch, and failed units that are clustered.
PAGE_SIZE, UNIT_PAGE_SIZE, HISTORY_SIZE, MAX_CLUSTERED_UNITS = 30, 50, 20, 1000

#: The reasons for which a run stopped.
STOP_REASONS = {
    AbortedBy.SIGNAL: "Stopped by a signal.",
    AbortedBy.MAX_FAILURES: "Stopped: too many units failed in a row. Fix the cause first.",
    AbortedBy.MAX_TOTAL_FAILURES: "Stopped: too many units failed. Fix the cause first.",
    AbortedBy.MAX_FAILURE_RATE: "Stopped: too large a share of the units failed. Fix the cause first.",
    AbortedBy.DEADLINE: "Stopped: the deadline passed.",
    AbortedBy.PAUSE: "Paused by a person.",
    AbortedBy.CANCEL: "Cancelled by a person.",
    AbortedBy.FATAL: "Stopped by an error that ends the whole run. Fix the cause first.",
    AbortedBy.INPUT: "Stopped: its keys could not be read. Fix the cause first.",
    AbortedBy.LIMIT: "Stopped: it reached its limit of units.",
    AbortedBy.LEASE_LOST: "Stopped: another run took over.",
    AbortedBy.STOP_SWITCH: "Stopped: the whole store was stopped.",
}


class BatchProgress(Struct, frozen=True):
    """The progress of a batch. *rate* is in units per second; *left* is the estimated remaining time.

    *share* and *left* are None while the number of units is unknown.
    """

    over: int
    share: float | None
    rate: float | None
    left: timedelta | None


def batch_progress(view: BatchView, now: datetime) -> BatchProgress:
    """The share of finished units. A running batch has a rate since its start."""
    total, over = view.summary.total, view.summary.over
    share = None if total is None else min(over / total, 1.0) if total else 1.0 if view.finished_at else 0.0
    rate = left = None
    if view.state == BatchState.RUNNING and view.started_at is not None and over:
        rate = over / max((now - view.started_at).total_seconds(), 0.001)
        left = None if total is None else timedelta(seconds=(total - over) / rate)
    return BatchProgress(over, share, rate, left)


def bar_parts(view: BatchView) -> list[tuple[str, int]]:
    """The parts of the progress bar: their tone and length."""
    summary = view.summary
    failed, others = summary.failed + summary.in_doubt, summary.skipped + summary.cancelled
    return [("good", summary.succeeded), ("bad", failed), ("idle", others)]


def shown_state(view: BatchView) -> tuple[str, str]:
    """The state and its text. A requested state is shown before the last units have finished."""
    if view.state == BatchState.RUNNING and view.requested == ControlRequest.PAUSE:
        return "pausing", "pausing: running units finish first"
    if view.requested == ControlRequest.CANCEL and view.state != BatchState.CANCELLED:
        return "cancelling", "cancelling: running units finish first"
    return view.state, view.state


def show_batches(request: Request) -> Response:
    before = request.query_number("before")
    query = {name: request.query(name) for name in ("state", "function", "name", "owner", "since", "until")}
    conditions = {name: text for name, text in query.items() if name != "state"}
    chosen = batch_filter(states=[query["state"]] if query["state"] else [], **conditions)
    if chosen.searches_text:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    page, now = list_batches(request.store, chosen, before=before, limit=PAGE_SIZE), request.now
    options = " ".join(f"--{name} {shlex.quote(text)}" for name, text in query.items() if text)
    return request.page(
        "batches.html",
        batches=[(view, batch_progress(view, now), bar_parts(view), shown_state(view)) for view in page.batches],
        next=page.next,
        before=before,
        query=query,
        filtered=bool(chosen.where),
        states=list(BatchState),
        cli=f"holdfast batch ls {options}".rstrip(),
    )


def show_batch(request: Request) -> Response:
    batch = BatchReader(request.store, request.id)
    view = batch.view
    failures = view.summary.failed + view.summary.in_doubt
    clusters = batch.clusters(limit=MAX_CLUSTERED_UNITS) if failures else []
    state = UnitState(name) if (name := request.query("state")) in UnitState._value2member_map_ else None
    label, text = request.query("label") or None, request.query("text") or None
    if text is not None:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    page = batch.units(state=state, label=label, text=text, after=request.query("after"), limit=UNIT_PAGE_SIZE)
    return request.page(
        "batch.html",
        "batches",
        batch=view,
        state=shown_state(view),
        progress=batch_progress(view, request.now),
        bar_parts=bar_parts(view),
        holders=[describe_owner(holder) for holder in view.holders],
        resume=(command := resume_command(view, is_sharded=batch.is_sharded)),
        has_secrets=MASK in command,
        why=STOP_REASONS[AbortedBy(view.aborted_by)] if view.aborted_by else "Paused by a person.",
        clusters=clusters,
        sampled=sum(cluster.count for cluster in clusters) < failures,
        failures=failures,
        history=batch.history(limit=HISTORY_SIZE),
        units=page.units,
        next=page.next,
        query={"state": state, "label": label, "text": text},
        states=list(UnitState),
        actions=offered(request, Target.BATCH, view.state, without=_useless(view)),
        cli=f"holdfast batch show {view.id}" if state is None else f"holdfast batch units {view.id} --state {state}",
    )


def _useless(view: BatchView) -> list[str]:
    """Actions that would change nothing, although the state of the batch allows them."""
    failures = view.summary.failed + view.summary.in_doubt
    pausing = view.requested == ControlRequest.PAUSE
    useless = {"resume": view.state == BatchState.RUNNING and not pausing, "pause": pausing}
    return [name for name, is_useless in {**useless, "retry-failed": not failures}.items() if is_useless]


def resume_command(view: BatchView, *, is_sharded: bool) -> str:
    """The command that resumes a batch; empty if only its own program can resume it."""
    if is_sharded:
        return f"holdfast batch resume {view.id}"
    if ":" not in view.kind or not view.source.startswith("range "):
        return ""
    options = [f"--set {shlex.quote(f'{name}={as_value(value)}')}" for name, value in view.arguments.items()]
    keys = view.source.removeprefix("range ")
    return " ".join(["holdfast batch run", shlex.quote(view.kind), "--range", keys, *options])


def change_batch(request: Request) -> Response:
    """Perform an action on a batch; cancelling and deleting ask for confirmation first."""
    path, batch_id = f"batches/{request.id}", BatchId(request.id)
    form = ActionForm(request, request.actions.batches, request.field("action"), batch_id)
    name = form.action.name
    if form.lacks_confirmation:
        cli = f"holdfast batch {name} {batch_id} --yes"
        hidden = {"action": name}
        return form.confirm("batches", title=f"batch {batch_id}", hidden=hidden, back=request.url(path), cli=cli)
    done = form.perform()
    return request.done(notice(done), "batches" if name == "rm" and done.changed else path)


def change_units(request: Request) -> Response:
    """Retry or skip the failed units of one cluster, after a confirmation with the answer of a dry run."""
    cluster, path = UnitCluster(BatchId(request.id), request.field("cluster")), f"batches/{request.id}"
    form = ActionForm(request, request.actions.units, request.field("action"), cluster)
    if form.lacks_confirmation:
        hidden = {"action": form.action.name, "cluster": cluster.key}
        return form.confirm("batches", hidden=hidden, back=request.url(path))
    return request.done(notice(form.perform()), path)
