"""``/healthz``, ``/readyz`` and ``/metrics``: for those who watch."""

from __future__ import annotations

import hmac
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
from holdfast.web.errors import Unauthenticated
from holdfast.web.security.authentication import COOKIE
from holdfast.worker.metrics import TOKEN, gauge

if TYPE_CHECKING:
    from holdfast.web.app import Site

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class StoreCollector(Collector):
    """What the store says, when somebody asks. All servers of a store tell the same: take the maximum, not the sum."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterable[Metric]:
        dashboard = self._site.store.dashboard
        tallies = dashboard.tallies()
        queues = queue_summaries(dashboard.lanes(), dashboard.queues(), tallies)
        jobs = [((state,), float(found.count)) for state, found in counts_of(tallies).items()]
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
        workers = float(len(self._site.store.workers.list()))
        yield gauge("store_workers", "Workers that are alive.", [], [((), workers)])

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of the store when the collector is made."""
        return [GaugeMetricFamily("holdfast_store_jobs", "Jobs by state.")]


def routes(site: Site) -> list[BaseRoute]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(site))

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        try:
            await run_in_threadpool(site.look)
        except HoldfastError:
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        await run_in_threadpool(_may_read, site, request)
        return Response(await run_in_threadpool(generate_latest, registry), media_type=TEXT)

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


def _may_read(site: Site, request: Request) -> None:
    """By the token of metrics, as at a worker, or as a viewer."""
    token = os.environ.get(TOKEN)
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token and hmac.compare_digest(given.encode(), token.encode()):
        return
    client = request.client
    address = None if client is None else client.host
    caller = site.authenticator.caller(site.store, request.headers, request.cookies.get(COOKIE), address)
    if caller is None:  # pragma: no cover - a doorkeeper lets in or raises
        raise Unauthenticated("a token is needed here")
