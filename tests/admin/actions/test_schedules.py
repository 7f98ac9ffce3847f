"""Actions on schedules whose scopes come from a function of the application."""

from __future__ import annotations

import pytest

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.schedules.definition import Definition


@pytest.mark.parametrize(("scopes", "jobs"), [(["a", "b"], 2), ([], 0)])
def test_a_trigger_calls_the_scope_function_once(store, scopes, jobs):
    """S8: a second call may take a minute, and answer otherwise."""
    store.kinds.publish([Kind("mail", lambda: None, KindOptions()).published()])
    store.schedules.create("tenants", Definition(kind="mail", cron="@daily", provider="tenants"), actor="ada")
    calls = []
    providers = {"tenants": lambda: calls.append(1) or scopes}
    actions = Actions(store, actor="ada", via=Via.CLI, providers=providers)
    assert len(actions.schedules.perform("trigger", "tenants").jobs) == jobs
    assert len(calls) == 1
