"""Which jobs are meant, and which never are."""

from __future__ import annotations

from datetime import datetime

import pytest

from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Glob, Selector
from holdfast.errors import InvalidInput


@pytest.mark.parametrize("name", ["ids", "keys", "labels", "tags", "queues", "kinds", "states"])
def test_an_empty_list_selects_nothing(name):
    """It came out of somebody's computation, and does not mean everything."""
    assert Selector(**{name: []}).empty
    assert not Selector().empty


@pytest.mark.parametrize(
    "conditions",
    [
        {"labels": "crawl-*"},
        {"queues": "default"},
        {"ids": ("7",)},
        {"ids": (2**70,)},
        {"states": ("deadd",)},
        {"since": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point of the test
        {"error": "nul\0"},
        {"labels": ("half \ud83d",)},
        {"kinds": (5,)},
    ],
)
def test_wrong_types_are_refused(conditions):
    """A text where a list belongs would be read letter by letter."""
    with pytest.raises(InvalidInput):
        Selector(**conditions)


def test_states_may_be_written_as_words():
    """One, or several."""
    assert Selector(states="dead").states == (State.DEAD,)
    assert Selector(states=["dead", "done"]).states == (State.DEAD, State.DONE)


def test_an_unknown_state_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match="'ded' is not a state of a job") as caught:
        Selector(states=("ded",))
    assert "dead" in caught.value.hint


def test_narrowing():
    """To states that it may have; to none it is empty."""
    assert Selector(kinds=["a"]).only(State.DEAD) == Selector(kinds=("a",), states=(State.DEAD,))
    assert Selector(states=["done"]).only(State.DEAD).empty


def test_only_the_star_is_special_in_a_pattern():
    """Percent, underscore, question mark and bracket mean themselves."""
    assert Glob("50%_*").as_like() == r"50\%\_%"
    assert Glob("a[b]?*").as_glob() == "a[[]b][?]*"
    assert not Glob("a*").exact
