"""The page of the audit log: every change that a person made, newest first."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from holdfast.web.request import Request

PAGE_SIZE = 50


def show_audit_log(request: Request) -> Response:
    actor, text = request.query("actor") or None, request.query("text") or None
    before = request.query_number("before")
    cursor = {} if before is None else {"before": before}
    entries = request.store.audit_log.page(limit=PAGE_SIZE, actor=actor, text=text, **cursor)
    cli = "holdfast acts" + (f" --actor {shlex.quote(actor)}" if actor else "")
    cli += f" --about {shlex.quote(text)}" if text else ""
    return request.page(
        "audit_log.html",
        "audit_log",
        entries=entries,
        actor=actor,
        text=text,
        next=entries[-1].id if len(entries) == PAGE_SIZE else None,
        before=before,
        cli=cli,
    )
