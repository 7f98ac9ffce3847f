"""The mutants themselves: they apply to this tree. That each is caught is shown by ``make mutants``."""

from __future__ import annotations

import re

import pytest

from tests.chaos.mutants.__main__ import all_mutants

MUTANTS = all_mutants()


def test_there_are_enough_of_them():
    """Of every sort that SPEC section 8 tells of."""
    assert len(MUTANTS) >= 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant):
    """To the tree as it is: ``python -m tests.chaos.mutants --refresh`` follows texts into other modules."""
    assert mutant.problems == []
    assert mutant.bug
    assert all(re.fullmatch(r"[A-Z]\d+", name) for name in mutant.invariants)
    assert mutant.harness[0] in ("pytest", "tests.chaos.simulation")
