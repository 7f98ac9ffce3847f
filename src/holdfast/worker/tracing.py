"""OpenTelemetry spans: the span of a run links to the span of its enqueue.

Only an application that has imported OpenTelemetry itself gets spans; others never load it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.domain.jobs.job import Lease
    from holdfast.store import Store
    from holdfast.worker.active_runs import Run

MODULE = "opentelemetry.trace"


def enqueue_span(kind: str) -> AbstractContextManager[str | None]:
    """A producer span around an enqueue; yields the trace context to store with the job, or None."""
    return nullcontext() if MODULE not in sys.modules else _enqueue_span(kind)


@contextmanager
def _enqueue_span(kind: str) -> Iterator[str | None]:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = trace.get_tracer("holdfast")
    with tracer.start_as_current_span(f"enqueue {kind}", kind=trace.SpanKind.PRODUCER) as span:
        span.set_attribute("messaging.system", "holdfast")
        span.set_attribute("messaging.destination.name", kind)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        yield carrier.get("traceparent")


def start_span(store: Store, run: Run) -> None:
    """Give a run its own span, if the application uses traces by then."""
    if MODULE in sys.modules:
        run.span = lambda: _run_span(store, run.lease)


@contextmanager
def _run_span(store: Store, lease: Lease) -> Iterator[None]:
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
    """A link to the span of the enqueue; none if the store fails, since a trace must not fail a job."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    try:
        context = store.traces.of(lease.job_id)
    except HoldfastError:
        context = None
    if context is None:
        return []
    span = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": context}))
    return [trace.Link(span.get_span_context())] if span.get_span_context().is_valid else []
