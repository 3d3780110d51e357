"""The table of moves, looked at as a whole."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from jobwire.job.states import MOVES, TERMINAL, Move, State, after


def test_terminal_states_never_change() -> None:
    for state, move in product(TERMINAL, Move):
        assert after(state, move) is None


def test_every_state_but_the_terminal_ones_can_end() -> None:
    for state in set(State) - TERMINAL:
        assert {after(state, move) for move in Move} & TERMINAL


def test_only_a_running_job_can_be_done() -> None:
    assert {state for (state, _), to in MOVES.items() if to is State.DONE} == {State.RUNNING}


def test_every_state_is_reached_from_waiting() -> None:
    reached = {State.WAITING}
    for _ in State:
        reached |= {to for (state, _), to in MOVES.items() if state in reached}
    assert reached == set(State)


@given(st.lists(st.sampled_from(Move)))
def test_any_story_ends_at_most_once(moves: list[Move]) -> None:
    state, ends = State.WAITING, 0
    for move in moves:
        following = after(state, move)
        if following is None:
            continue
        assert state not in TERMINAL
        state = following
        ends += state in TERMINAL
    assert ends <= 1
