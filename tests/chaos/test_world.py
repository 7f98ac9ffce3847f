"""The short form of the campaigns: a few worlds, struck for some seconds by seed, in which nothing may be broken."""

from __future__ import annotations

import pytest

from tests.chaos.campaigns import Campaign, run_on
from tests.chaos.sites import PostgresSite, SqliteSite
from tests.chaos.situations import NEMESES
from tests.chaos.world import Shape
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.xdist_group("chaos")


def strike(site, names, *, seed, count, **shape):
    """A small world; what was broken, with the command that does it again, and how often it was struck."""
    campaign = Campaign(names=names, backend=site.name, seed=seed, count=count)
    nemeses = {name: NEMESES[name]() for name in names}
    outcome = run_on(site, campaign, nemeses, shape=Shape(**{"workers": 3, "every": 0.04, **shape}))
    assert outcome.violations == [], f"{outcome.folder}: {campaign.replay}"
    assert min(outcome.strikes.values()) >= count
    assert outcome.figures["jobs"] > 0
    return outcome


@pytest.fixture
def site(real_database, tmp_path):
    """A store that was emptied for this test; before the server stands a proxy."""
    if real_database.name == "sqlite":
        yield SqliteSite(tmp_path)
        return
    with proxy_to(real_database.url) as proxy:
        site = PostgresSite(real_database.url, proxy.uri)
        site.proxy = proxy
        yield site


def test_nothing_is_broken(site):
    """Kills and pauses past the lease, with writers that contend for the file, or answers that are lost, all at once."""
    third = "storms" if site.name == "sqlite" else "answers"
    strike(site, ("kills", "pauses", third), seed=11, count=4)


def test_nothing_outlives_stopped_workers(site):
    """K71: supervisors do not wait for workers that do not read; programs of autoscaled queues end with their leases."""
    strike(site, ("stopped",), seed=5, count=4, every=0.2, measured=True, drivers=False)


def test_hung_providers_delay_no_plain_plan(site):
    """V1, V2: scope functions that hang, raise or are slow, with kills of planners, beside plain schedules."""
    outcome = strike(site, ("providers",), seed=5, count=24, heavy=False, drivers=False)
    assert outcome.figures["plans"] > 0
