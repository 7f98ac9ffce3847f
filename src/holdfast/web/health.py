"""Health checks and metrics: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.views.batch_metrics import batch_metrics
from holdfast.errors import HoldfastError
from holdfast.worker.metrics import TOKEN
from holdfast.worker.store_metrics import StoreMetrics

if TYPE_CHECKING:
    from holdfast.web.app import Site

#: Scrapes that run at a time.
MAX_SCRAPES = 4
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StoreCollector(Collector):
    """Metrics of the store, which workers report as well."""

    def __init__(self, site: Site) -> None:
        self._metrics = StoreMetrics(lambda: site.store, more=batch_metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()


def routes(site: Site) -> list[BaseRoute]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(site))
    # Threads of their own: other requests may all wait for a store that does not answer.
    limiter = CapacityLimiter(MAX_SCRAPES)

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        try:
            await run_in_threadpool(site.read_changes)
        except HoldfastError:
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        if not _has_metrics_token(site, request):
            await run_in_threadpool(site.authenticator.identify, request, lambda: site.store)
        text = await to_thread.run_sync(generate_latest, registry, limiter=limiter)
        return Response(text, media_type=METRICS_TYPE)

    return [Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", metrics)]


def _has_metrics_token(site: Site, request: Request) -> bool:
    """Whether the request has the metrics token, which workers accept too. No store is read for it."""
    expected = os.environ.get(TOKEN)
    return bool(expected) and site.authenticator.check_metrics_token(str(expected), request)
