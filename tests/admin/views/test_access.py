"""Views of the audit log and of saved filters, without secrets."""

from __future__ import annotations

import msgspec

from holdfast.admin.actions.actions import Actions
from holdfast.admin.views.access import audit_views, filter_views
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.selector import Selector
from tests.support.jobs import put


def test_a_note_shows_no_secret_of_the_payload(store):
    """E1.1: the payload of a job that is named by its id decides."""
    ids = [put(store, payload=msgspec.json.encode({"token": f"hunter22-{n}"}).decode()) for n in range(2)]
    actions = Actions(store, actor="ada", via=Via.CLI)
    actions.jobs.perform("hold", Selector(ids=tuple(ids)), note="hunter22-1 is wrong, password=abc")
    (entry,) = audit_views(store)
    assert entry.note == "*** is wrong, password=***"


def test_a_saved_filter_shows_no_secret(store):
    store.saved_filters.save("mine", "label='x?password=hunter22'", actor="ada")
    assert [each.filter for each in filter_views(store)] == ["label='x?password=***'"]
