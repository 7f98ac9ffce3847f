"""The page of the doctor: its findings about this server and the store."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.domain.health_check import Level
from holdfast.web.request import Request

#: Findings in the order of the page, with the states that they are drawn as.
LEVELS = {Level.FAIL: "problem", Level.WARN: "warning", Level.OK: "ok"}


def show_doctor(request: Request) -> Response:
    checks, at = request.site.diagnose()
    order = list(LEVELS)
    return request.page(
        "doctor.html",
        "doctor",
        checks=sorted(checks, key=lambda check: order.index(check.level)),
        failures=sum(check.level is Level.FAIL for check in checks),
        warnings=sum(check.level is Level.WARN for check in checks),
        examined_at=at,
        states=LEVELS,
        cli="holdfast doctor",
    )
