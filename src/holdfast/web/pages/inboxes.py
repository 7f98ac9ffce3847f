"""The page of inboxes and their results, and the form of a result."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from holdfast.admin.views.inboxes import list_inboxes, list_results
from holdfast.web.pages.action import ActionForm, notice
from holdfast.web.request import Request

#: Results of one inbox on the page.
PAGE_SIZE = 50


def show_inboxes(request: Request) -> Response:
    """All inboxes, and the results in one of them; the page takes none."""
    inbox = request.query("inbox")
    return request.page(
        "inboxes.html",
        inboxes=list_inboxes(request.store),
        inbox=inbox,
        results=list_results(request.store, inbox, limit=PAGE_SIZE) if inbox else [],
        cli=f"holdfast inbox show {shlex.quote(inbox)}" if inbox else "holdfast inbox ls",
    )


def change_result(request: Request) -> Response:
    """Accept or refuse one free result, after a confirmation."""
    inbox, receipt = request.query("inbox"), request.field("receipt")
    form = ActionForm(request, request.actions.inboxes, request.field("action"), [receipt])
    if form.lacks_confirmation:
        hidden, cli = {"action": form.action.name, "receipt": receipt}, f"holdfast inbox {form.action.name} {receipt}"
        return form.confirm("inboxes", hidden=hidden, back=request.url("inboxes", inbox=inbox), cli=cli)
    return request.done(notice(form.perform()), "inboxes", inbox=inbox)
