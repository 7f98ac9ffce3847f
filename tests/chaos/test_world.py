"""The short form of the campaigns: a few worlds, struck for some seconds by seed, in which nothing may be broken."""

from __future__ import annotations

import pytest

from tests.chaos.campaigns import Campaign, run_on
from tests.chaos.nemeses import NEMESES
from tests.chaos.sites import PostgresSite, SqliteSite
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
    """A store that was emptied for this test."""
    return SqliteSite(tmp_path) if real_database.name == "sqlite" else PostgresSite(real_database.url)


def test_kills_and_pauses_at_once(site):
    """Workers, their children and foreground runs are killed and paused past their leases."""
    strike(site, ("kills", "pauses"), seed=11, count=6)


def test_lost_answers(real_database):
    """Connections are cut after the server has committed: nothing is doubled, nothing is lost."""
    if real_database.name == "sqlite":
        return  # a local commit always answers
    with proxy_to(real_database.url) as proxy:
        site = PostgresSite(real_database.url, proxy.uri)
        site.proxy = proxy
        strike(site, ("answers",), seed=12, count=5, heavy=False)


def test_a_storm_of_writers(tmp_path):
    """Thirty-two writers contend for the file of the store."""
    strike(SqliteSite(tmp_path), ("storms",), seed=13, count=1, heavy=False)
