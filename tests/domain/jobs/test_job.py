"""States and transitions."""

from __future__ import annotations

from holdfast.domain.jobs.job import FINISHED, LIVE, TRANSITIONS, State


def test_every_state_has_its_transitions():
    """The table has every state, and only ready jobs start."""
    assert set(TRANSITIONS) == set(State)
    assert set(State) == LIVE | FINISHED
    assert not LIVE & FINISHED
    assert all(State.RUNNING not in targets for state, targets in TRANSITIONS.items() if state is not State.READY)


def test_only_a_restart_leads_out_of_done():
    """A person begins it anew; nothing else becomes of it."""
    assert TRANSITIONS[State.DONE] == TRANSITIONS[State.DEAD] == {State.READY, State.WAITING}
