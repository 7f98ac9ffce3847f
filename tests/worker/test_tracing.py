"""Traces: the span of a run is linked to that of the enqueue, where the application uses OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast

pytestmark = pytest.mark.one_backend


@pytest.fixture
def spans():
    """The finished spans, oldest first."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    once, trace._TRACER_PROVIDER_SET_ONCE = trace._TRACER_PROVIDER_SET_ONCE, type(trace._TRACER_PROVIDER_SET_ONCE)()
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, None
    trace.set_tracer_provider(provider)
    yield exporter.get_finished_spans
    trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = before, once


def test_a_run_is_linked_to_its_enqueue(real_database, spans):
    """The trace context is stored with the job, and the span records a failure."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(max_attempts=1)
        def mail(good: bool) -> None:
            if not good:
                raise ValueError("no good")

        @app.job()
        async def post() -> None:
            """Nothing to do."""

        jobs = [mail.enqueue(good=True), mail.enqueue(good=False), post.enqueue()]
        assert app.store.traces.of(jobs[0].id).startswith("00-")
        app.worker(drain=True, poll=0.02).run()
    made = {(span.name, span.attributes.get("holdfast.job.id")): span for span in spans()}
    produced = [span for span in spans() if span.name == "enqueue mail"]
    run = made["run mail", jobs[0].id]
    assert run.links[0].context.span_id == produced[0].context.span_id
    assert not made["run mail", jobs[1].id].status.is_ok
    assert made["run post", jobs[2].id].links


def test_an_application_without_traces_loads_nothing(tmp_path):
    """Not by an enqueue, and not by a worker."""
    code = (
        "import sys, holdfast\n"
        f"app = holdfast.Holdfast('sqlite:///{tmp_path}/jobs.db')\n"
        "mail = app.job(name='mail')(lambda: None)\n"
        "mail.enqueue()\n"
        "app.worker(drain=True, poll=0.02).run()\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
