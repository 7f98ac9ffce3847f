"""The simulation: a fleet in one thread breaks no invariant, whatever the seed."""

from __future__ import annotations

import os

import pytest

from tests.chaos.simulation import play, shortened, simulate, steps_of
from tests.chaos.standing import Broken

#: ``HOLDFAST_SIMULATIONS=500`` looks longer.
SEEDS = int(os.environ.get("HOLDFAST_SIMULATIONS", "6"))
STEPS = 250


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_simulated_fleet_keeps_every_promise(seed: int):
    """Crashes, stops, lapses, retries, cancels, limits, needs, keys, schedules and batches, all at once."""
    simulate(seed, STEPS)


def test_a_seed_tells_the_same_story_twice():
    """Or no failure could be shown again."""
    assert steps_of(7, 50) == steps_of(7, 50) != steps_of(8, 50)


def test_a_failure_is_shortened_to_what_it_needs(monkeypatch):
    """The steps that have nothing to do with it are left out."""
    steps = steps_of(3, 40)

    def broken_by(found, seed):
        return Broken("I4", "planted") if steps[5] in found and steps[30] in found else None

    monkeypatch.setattr("tests.chaos.simulation.play", broken_by)
    assert shortened(steps, 3, Broken("I4", "planted")) == [steps[5], steps[30]]


def test_an_empty_run_breaks_nothing():
    """A fleet that was never asked for anything is quiet."""
    assert play([], 1) is None
