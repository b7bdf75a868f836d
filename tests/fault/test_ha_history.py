"""What judges the campaign of tests/ha finds what is wrong with a history."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ha"))
from history import Hold, Register, double_holders, stale_writes, tokens_that_went_back  # noqa: E402

GOOD = [Hold("a", 1, 0.0, 5.0), Hold("a", 2, 5.0, 6.0), Hold("b", 1, 2.0, 9.0), Hold("a", 7, 8.0, 9.0)]


def test_a_good_history_is_good():
    assert not double_holders(GOOD) and not tokens_that_went_back(GOOD)


def test_two_holders_at_once_are_found():
    assert double_holders([*GOOD, Hold("b", 3, 8.9, 9.5)]) == [(GOOD[2], Hold("b", 3, 8.9, 9.5))]
    inside = Hold("b", 3, 3.0, 4.0)
    late = Hold("b", 4, 8.0, 9.5)
    assert double_holders([*GOOD, inside, late]) == [(GOOD[2], inside), (GOOD[2], late)], "a short one in between hides nothing"


def test_a_token_that_went_back_is_found():
    back = Hold("a", 2, 10.0, 11.0)
    assert tokens_that_went_back([*GOOD, back]) == [(GOOD[3], back)]
    assert tokens_that_went_back([*GOOD, Hold("a", 7, 10.0, 11.0)]), "nor may it stay"


def test_stale_writes_are_counted_and_fencing_refuses_them():
    register = Register()
    for token in (1, 2, 1, 2, 1, 3):
        register.write("a", token)
    assert stale_writes(register.unfenced) == 2 and stale_writes(register.fenced) == 0 and register.refused == 2
