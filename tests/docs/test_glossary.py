"""The glossary names every state that the code has, and every system that it promises to map."""

from __future__ import annotations

import re

import pytest

from holdfast import BatchState, State
from holdfast.domain.batches.unit import UnitState
from tests.docs.test_snippets import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text()
STATES = PAGE[PAGE.index("## States") :]


def test_every_state_of_a_job_is_mapped_in_both_tables():
    rows = re.findall(r"^\| `(\w+)` \|", STATES, re.MULTILINE)
    assert rows == 2 * [state.value for state in State]


@pytest.mark.parametrize("states", [BatchState, UnitState], ids=lambda states: states.__name__)
def test_states_of_batches_and_units_are_listed(states):
    assert {state.value for state in states} <= set(re.findall(r"`(\w+)`", STATES))


@pytest.mark.parametrize("system", ["Celery", "RQ", "Oban", "River", "Temporal", "Airflow", "pueue"])
def test_every_system_has_a_column(system):
    assert re.search(rf"^\| Holdfast \|.*\b{system}\b", PAGE, re.MULTILINE)
