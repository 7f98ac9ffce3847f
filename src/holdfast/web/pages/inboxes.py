"""The page of inboxes and their results."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from holdfast.admin.views.inboxes import list_inboxes, list_results
from holdfast.web.request import Request

#: Results of one inbox on the page.
PAGE_SIZE = 50


def show_inboxes(request: Request) -> Response:
    """All inboxes, and the results in one of them. Looking takes none."""
    inbox = request.query("inbox")
    return request.page(
        "inboxes.html",
        inboxes=list_inboxes(request.store),
        inbox=inbox,
        results=list_results(request.store, inbox, limit=PAGE_SIZE) if inbox else [],
        cli=f"holdfast inbox show {shlex.quote(inbox)}" if inbox else "holdfast inbox ls",
    )
