"""Metrics of the store for Prometheus: ``/metrics`` of the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.views.batch_metrics import batch_metrics
from holdfast.worker.store_metrics import StoreMetrics

if TYPE_CHECKING:
    from holdfast.web.app import Site

#: Scrapes that run at a time.
MAX_SCRAPES = 4
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(site: Site) -> list[BaseRoute]:
    registry = CollectorRegistry(auto_describe=False)
    # Workers report the metrics of the store as well.
    registry.register(StoreMetrics(lambda: site.store, more=batch_metrics))
    # Threads of their own: other requests may all wait for a store that does not answer.
    limiter = CapacityLimiter(MAX_SCRAPES)

    async def metrics(request: Request) -> Response:
        if not site.authenticator.has_metrics_token(request):
            await run_in_threadpool(site.authenticator.identify, request, lambda: site.store)
        text = await to_thread.run_sync(generate_latest, registry, limiter=limiter)
        return Response(text, media_type=METRICS_TYPE)

    return [Route("/metrics", metrics)]
