import pytest

from penstock.core.raft import AddLearner, Configuration, PromoteLearner, RemoveMember
from penstock.core.raft.types import EMPTY_CONFIGURATION, changed
from tests.property.raft.raft_arena import member_of

A, B, C, D, E = (member_of(number) for number in range(1, 6))


@pytest.mark.parametrize(
    ("values", "agreed"),
    [
        ({}, 0),
        ({A: 7}, 0),
        ({A: 7, B: 5}, 5),
        ({A: 7, B: 5, C: 6}, 6),
        ({A: 7, D: 9, E: 9}, 0),
    ],
)
def test_a_value_is_agreed_when_a_majority_of_the_voters_has_reached_it(
    values: dict[object, int], agreed: int
) -> None:
    configuration = Configuration((A, B, C), (D,))

    assert configuration.agreed(values) == agreed  # type: ignore[arg-type]


def test_four_voters_need_three_and_nobody_is_never_enough() -> None:
    assert Configuration((A, B, C, D)).majority == 3
    assert Configuration((A,)).agreed({A: 3}) == 3
    assert EMPTY_CONFIGURATION.agreed({A: 3}) == 0


def test_a_newcomer_learns_is_promoted_and_removed() -> None:
    one = Configuration((A,))

    learning = changed(one, AddLearner(B))
    voting = changed(learning, PromoteLearner(B))
    alone = changed(voting, RemoveMember(A))

    assert learning == Configuration((A,), (B,))
    assert voting == Configuration((A, B))
    assert alone == Configuration((B,))


def test_the_same_node_with_another_directory_is_another_member() -> None:
    again = member_of(1, directory=1)

    assert changed(Configuration((A,)), AddLearner(again)).members == (A, again)
