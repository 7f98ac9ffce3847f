"""The short form of the campaigns: a few worlds, struck for some seconds by seed, in which nothing may be broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chaos.campaigns import Campaign, run_on
from tests.chaos.nemeses import Nemesis
from tests.chaos.sites import PostgresSite, SqliteSite
from tests.chaos.situations import NEMESES
from tests.chaos.world import FEW_BEGUN, MOST_BEGUN, Shape, World
from tests.support.proxy import proxy_to


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


class Failing(Nemesis):
    """A nemesis that finds something broken itself."""

    def strike(self, world):
        raise ValueError("broken")


def test_a_world_that_failed_keeps_its_history_and_its_store(site):
    """The path is in the notes of the error; the copy has the moves of the jobs too."""
    campaign = Campaign(names=("failing",), backend=site.name, seed=1, count=1)
    shape = Shape(workers=1, drivers=False, heavy=False)
    with pytest.raises(ValueError, match="broken") as failed:
        run_on(site, campaign, {"failing": Failing()}, shape=shape)
    folder = Path(failed.value.__notes__[0].rpartition(" ")[2])
    try:
        (store,) = folder.glob("store.*")
        assert b"chaos_move" in store.read_bytes()
        assert [*folder.glob("client-*.ndjson")]
    finally:
        shutil.rmtree(folder)


class ToldDriver:
    """A driver that has told what it was given."""

    alive = True

    def __init__(self, told):
        self.told = told

    def says(self):
        return bool(self.told)

    def hear(self):
        return self.told.pop(0)

    def kill(self):
        """It is no process."""

    end = kill


def test_no_batch_is_begun_in_the_foreground_while_many_are_open(tmp_path):
    """A new driver goes on with the oldest. New ones begin again when all but a few are over."""
    world = World(SqliteSite(tmp_path), seed=1, shape=Shape(workers=0))
    names = [f"here batch {n}" for n in range(MOST_BEGUN + 1)]

    def hear(*told):
        world.driver = ToldDriver([*told])
        world.tend()
        return world.behind

    try:
        assert not hear(*((name, False) for name in names[:-1]))
        assert hear((names[-1], False))
        assert world.driver.hear() == (names[0], False)
        world.driver.kill()
        world.driver.end()
        assert hear(*((name, True) for name in names[FEW_BEGUN + 1 :]))
        assert not hear((names[0], True))
        assert not hear((names[0], False))
    finally:
        shutil.rmtree(world.folder)
