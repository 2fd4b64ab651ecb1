"""The table of states: every step from every state."""

from __future__ import annotations

import pytest

from sandbox.manager import states
from sandbox.manager.states import STATES, TRANSITIONS, WrongState

STEPS = {step for steps in TRANSITIONS.values() for step in steps}


def test_every_state_has_its_row_and_leads_to_a_state() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert {to for steps in TRANSITIONS.values() for to in steps.values()} <= set(STATES)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_step_that_the_table_does_not_have_is_refused(state: str, step: str) -> None:
    if step in TRANSITIONS[state]:
        assert states.after(state, step) == TRANSITIONS[state][step]
    else:
        with pytest.raises(WrongState, match=f"cannot {step}: the sandbox is {state}"):
            states.after(state, step)


def test_every_state_can_be_reached_and_every_running_one_can_be_stopped() -> None:
    reached, todo = {states.UNINITIALIZED}, [states.UNINITIALIZED]
    while todo:
        for after in TRANSITIONS[todo.pop()].values():
            if after not in reached:
                reached.add(after)
                todo.append(after)
    assert reached == set(STATES)
    for state in STATES:
        assert state in (states.STOPPED, states.STOPPING) or TRANSITIONS[state]["stop"] == states.STOPPING


def test_once_it_stops_nothing_else_can_happen() -> None:
    assert set(TRANSITIONS[states.STOPPING]) == {"stopped"}
