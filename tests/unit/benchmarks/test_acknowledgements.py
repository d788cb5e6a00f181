import pytest

from benchmarks.durability.recovery import Acknowledgements, Findings

PARTITIONS = 2
# Partition, offset and number: 0, 2, 4 were written to partition 0; 1, 3 to partition 1.
WRITTEN = [(0, 0, 0), (0, 1, 2), (0, 2, 4), (1, 0, 1), (1, 1, 3)]


@pytest.fixture
def acknowledgements() -> Acknowledgements:
    """Everything was acknowledged, except for number 3, which was under way."""
    found = Acknowledgements(PARTITIONS)
    found.sent = 5
    for partition, offset, number in WRITTEN[:-1]:
        found.note(partition, offset, number)
    return found


def test_what_was_under_way_may_be_there_or_not(acknowledgements: Acknowledgements) -> None:
    assert acknowledgements.compare(WRITTEN) == Findings()
    assert acknowledgements.compare(WRITTEN[:-1]) == Findings()


def test_acknowledged_records_that_are_not_there_are_lost(acknowledgements: Acknowledgements) -> None:
    assert acknowledgements.compare([WRITTEN[0], WRITTEN[3]]) == Findings(lost=2)


def test_another_record_at_an_acknowledged_offset_has_replaced_it(acknowledgements: Acknowledgements) -> None:
    acknowledgements.sent = 7
    read = [(0, 0, 0), (0, 1, 6), (0, 2, 4), (1, 0, 1)]

    assert acknowledgements.compare(read) == Findings(replaced=1)


def test_a_number_read_twice_is_a_duplicate(acknowledgements: Acknowledgements) -> None:
    assert acknowledgements.compare([*WRITTEN, (1, 2, 3)]) == Findings(duplicates=1)


@pytest.mark.parametrize("stranger", [(1, 2, 5), (1, 2, 2), (1, 2, -7)], ids=["unsent", "elsewhere", "rot"])
def test_what_was_never_sent_there_is_unexpected(
    acknowledgements: Acknowledgements, stranger: tuple[int, int, int]
) -> None:
    assert acknowledgements.compare([*WRITTEN, stranger]) == Findings(unexpected=1)


def test_an_offset_acknowledged_for_two_records_was_reused(acknowledgements: Acknowledgements) -> None:
    acknowledgements.sent = 7
    acknowledgements.note(0, 1, 6)
    read = [(0, 0, 0), (0, 1, 6), (0, 2, 4), (1, 0, 1)]

    assert acknowledgements.compare(read) == Findings(replaced=1, reused=1)
