"""Health checks and metrics: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.views.overview import counts_of, queue_summaries
from holdfast.errors import HoldfastError
from holdfast.web.batch_metrics import batch_metrics
from holdfast.worker.metrics import TOKEN, gauge

if TYPE_CHECKING:
    from holdfast.web.app import Site

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StoreCollector(Collector):
    """Metrics of the store, read on each scrape. All servers report the same values: aggregate by maximum, not sum."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterable[Metric]:
        dashboard = self._site.store.dashboard
        tallies = dashboard.tallies()
        queues = queue_summaries(dashboard.lanes(), dashboard.queues(), tallies)
        jobs = [((state,), float(count.count)) for state, count in counts_of(tallies).items()]
        yield gauge("store_jobs", "Jobs by state, counted up to 1,000.", ["state"], jobs)
        depth = [((queue.name, "ready"), float(queue.ready)) for queue in queues]
        depth += [((queue.name, "running"), float(queue.running)) for queue in queues]
        yield gauge("store_queue_depth", "Jobs in a queue, counted up to 1,000.", ["queue", "state"], depth)
        oldest = [((queue.name,), queue.oldest_s or 0.0) for queue in queues]
        yield gauge("store_queue_oldest_ready_seconds", "How long the oldest ready job has waited.", ["queue"], oldest)
        paused = [((queue.name,), float(queue.paused)) for queue in queues]
        yield gauge("store_queue_paused", "Whether a queue is paused.", ["queue"], paused)
        expired = float(sum(queue.expired for queue in queues))
        yield gauge("store_running_expired", "Running jobs whose lease has lapsed; healthy: 0.", [], [((), expired)])
        lag = self._site.store.schedules.lag().total_seconds()
        yield gauge("store_schedule_lag_seconds", "How long the oldest due plan has waited.", [], [((), lag)])
        yield from batch_metrics(self._site.store)
        workers = float(len(self._site.store.workers.list()))
        yield gauge("store_workers", "Workers that are alive.", [], [((), workers)])

    def describe(self) -> Iterable[Metric]:
        """A constant: registering the collector must not read the store."""
        return [GaugeMetricFamily("holdfast_store_jobs", "Jobs by state.")]


def routes(site: Site) -> list[BaseRoute]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(site))

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        try:
            await run_in_threadpool(site.read_changes)
        except HoldfastError:
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        await run_in_threadpool(_check_access, site, request)
        return Response(await run_in_threadpool(generate_latest, registry), media_type=METRICS_TYPE)

    return [Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", metrics)]


def _check_access(site: Site, request: Request) -> None:
    """Accept the metrics token, which workers accept too, or any caller that the site knows."""
    expected = os.environ.get(TOKEN)
    if not (expected and site.authenticator.check_metrics_token(expected, request)):
        site.authenticator.identify(request, lambda: site.store)
