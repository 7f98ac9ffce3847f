"""Campaigns: a world is struck so many times, or for so long, by one nemesis or by several, from one seed."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.checker import Violation
from tests.chaos.nemeses import Nemesis
from tests.chaos.sites import Site, open_site, small_disk
from tests.chaos.situations import NEMESES
from tests.chaos.world import Shape, World

#: Megabytes of the disk that is filled.
DISK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What is to be done: until there were *count* strikes of each nemesis, or *seconds* have passed."""

    names: tuple[str, ...]
    backend: str
    seed: int
    count: int | None = None
    seconds: float | None = None

    @property
    def replay(self) -> str:
        """The command that does it again."""
        length = f"--count {self.count}" if self.count is not None else f"--seconds {self.seconds:g}"
        return f"python -m tests.chaos {','.join(self.names)} --backend {self.backend} {length} --seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a campaign."""

    campaign: Campaign
    strikes: dict[str, int]
    took: float
    violations: list[Violation]
    figures: dict[str, int]
    #: The history and the store of a campaign that failed are kept.
    folder: Path | None


def run(campaign: Campaign, *, told: Callable[[str], None] = lambda _: None) -> Outcome:
    """Do it, in a world of its own."""
    nemeses = {name: NEMESES[name]() for name in campaign.names}
    with _site(campaign, list(nemeses.values())) as site:
        return run_on(site, campaign, nemeses, told=told)


def run_on(
    site: Site,
    campaign: Campaign,
    nemeses: dict[str, Nemesis],
    *,
    shape: Shape | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Do it on a store that is there already and empty."""
    began = time.monotonic()
    requested = {key: value for nemesis in nemeses.values() for key, value in nemesis.shape.items()}
    with World(site, seed=campaign.seed, shape=shape or Shape(**requested)) as world:
        strikes = _strike(world, campaign, nemeses, told)
        told("healing, and waiting until all is quiet")
        for nemesis in nemeses.values():
            nemesis.heal(world)
        verdict = world.verdict()
        violations = [
            each for each in verdict.violations if not any(nemesis.forgives(each) for nemesis in nemeses.values())
        ]
        world.kept = bool(violations)
    return Outcome(
        campaign=campaign,
        strikes=dict(strikes),
        took=time.monotonic() - began,
        violations=violations,
        figures=verdict.figures,
        folder=world.folder if violations else None,
    )


def _strike(world: World, campaign: Campaign, nemeses: dict[str, Nemesis], told: Callable[[str], None]) -> Counter[str]:
    """Strike in turns, each nemesis in its own time, until there is enough."""
    began = tell_at = time.monotonic()
    strikes = Counter(dict.fromkeys(nemeses, 0))
    due = {name: began + world.random.random() * nemesis.every for name, nemesis in nemeses.items()}
    while left := [name for name in nemeses if campaign.count is None or strikes[name] < campaign.count]:
        now = time.monotonic()
        if campaign.seconds is not None and now - began >= campaign.seconds:
            break
        name = min(left, key=due.__getitem__)
        world.rest(max(0.0, due[name] - now))
        strikes[name] += nemeses[name].strike(world)
        due[name] = time.monotonic() + world.random.expovariate(1 / nemeses[name].every)
        if time.monotonic() - tell_at > 10:
            tell_at = time.monotonic()
            told(f"{tell_at - began:.0f} s: {dict(strikes)}, {world.client.asked} requests")
    return strikes


@contextmanager
def _site(campaign: Campaign, nemeses: list[Nemesis]) -> Iterator[Site]:
    before = {nemesis.before for nemesis in nemeses if nemesis.before is not None}
    if len(before) > 1:
        raise ValueError(f"only one of {sorted(before)} can stand before the store: run these apart")
    settings = {key: value for nemesis in nemeses for key, value in nemesis.settings.items()}
    if before == {"small disk"}:
        with small_disk(DISK) as folder, open_site(campaign.backend, folder) as site:
            yield site
        return
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-site-", ignore_cleanup_errors=True) as folder,
        open_site(campaign.backend, Path(folder), before=next(iter(before), None), **settings) as site,
    ):
        yield site
