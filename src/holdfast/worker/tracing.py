"""Traces, for applications that use OpenTelemetry: a job's span is linked to that of whoever enqueued it.

It is used where the application has loaded it already, and never loaded by us: whoever does without pays nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.domain.jobs.job import Lease
    from holdfast.store import Store
    from holdfast.worker.active_runs import Run

LOADED = "opentelemetry.trace"


def producing(kind: str) -> AbstractContextManager[str | None]:
    """A producer's span around an enqueue; gives the trace context that goes with the job, or None without traces."""
    return nullcontext() if LOADED not in sys.modules else _producing(kind)


@contextmanager
def _producing(kind: str) -> Iterator[str | None]:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = trace.get_tracer("holdfast")
    with tracer.start_as_current_span(f"enqueue {kind}", kind=trace.SpanKind.PRODUCER) as span:
        span.set_attribute("messaging.system", "holdfast")
        span.set_attribute("messaging.destination.name", kind)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        yield carrier.get("traceparent")


def dresser(store: Store) -> Callable[[Run], None]:
    """Gives each run a span of its own, if the application uses traces by then."""

    def dress(run: Run) -> None:
        if LOADED in sys.modules:
            run.around = lambda: _consuming(store, run.lease)

    return dress


@contextmanager
def _consuming(store: Store, lease: Lease) -> Iterator[None]:
    from opentelemetry import trace

    tracer = trace.get_tracer("holdfast")
    options: dict[str, Any] = {"kind": trace.SpanKind.CONSUMER, "links": _links(store, lease)}
    with tracer.start_as_current_span(f"run {lease.kind}", **options) as span:
        span.set_attribute("messaging.system", "holdfast")
        span.set_attribute("messaging.destination.name", lease.queue)
        span.set_attribute("holdfast.job.id", lease.job_id)
        span.set_attribute("holdfast.job.attempt", lease.attempt)
        yield


def _links(store: Store, lease: Lease) -> list[Any]:
    """The span of whoever enqueued the job. A trace is never worth a job: without an answer there is no link."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    try:
        context = store.traces.of(lease.job_id)
    except HoldfastError:
        context = None
    if context is None:
        return []
    found = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": context}))
    return [trace.Link(found.get_span_context())] if found.get_span_context().is_valid else []
