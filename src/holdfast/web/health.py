"""Health checks of the dashboard: ``/healthz`` and ``/readyz``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.web.app import Site


def routes(site: Site) -> list[BaseRoute]:
    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        try:
            await run_in_threadpool(site.read_changes)
        except HoldfastError:
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    return [Route("/healthz", alive), Route("/readyz", ready)]
