"""Copies are compared byte by byte, where all of them have to be the same."""

from penstock.sim.checkers.durability import StoredBatch
from penstock.sim.checkers.replicas import ReplicaCopy, check_replicas

A, B, C = StoredBatch(0, 2, b"a"), StoredBatch(2, 3, b"b"), StoredBatch(3, 5, b"c")


def test_copies_of_the_same_bytes_are_right() -> None:
    assert check_replicas("p", {1: ReplicaCopy(0, 5, [A, B, C]), 2: ReplicaCopy(0, 5, [A, B, C])}, 5) == []


def test_copies_may_differ_above_the_high_watermark_and_below_either_start() -> None:
    other = StoredBatch(3, 4, b"x")

    assert check_replicas("p", {1: ReplicaCopy(0, 5, [A, B, C]), 2: ReplicaCopy(2, 4, [B, other])}, 3) == []


def test_other_bytes_are_named_with_their_offset() -> None:
    altered = B._replace(content=b"x")

    (anomaly,) = check_replicas("p", {1: ReplicaCopy(0, 3, [A, B]), 3: ReplicaCopy(0, 3, [A, altered])}, 3)

    assert anomaly == "replicas differ: p at offset 2 on nodes 1 and 3"


def test_a_batch_that_one_copy_lacks_is_noticed_either_way() -> None:
    whole, hole = ReplicaCopy(0, 3, [A, B]), ReplicaCopy(0, 3, [A])

    assert check_replicas("p", {1: whole, 2: hole}, 3)
    assert check_replicas("p", {1: hole, 2: whole}, 3)


def test_a_copy_that_ends_below_the_high_watermark_is_too_short() -> None:
    (anomaly, *_) = check_replicas("p", {1: ReplicaCopy(0, 3, [A, B]), 2: ReplicaCopy(0, 2, [A])}, 3)

    assert anomaly.startswith("replica too short")


def test_what_was_damaged_on_purpose_may_be_missing_but_not_wrong() -> None:
    whole = [StoredBatch(0, 2, b"a"), StoredBatch(2, 3, b"b")]
    missing, wrong = [whole[0]], [whole[0], StoredBatch(2, 3, b"c")]

    assert (
        check_replicas("p", {1: ReplicaCopy(0, 3, whole), 2: ReplicaCopy(0, 3, missing, [(2, 3)])}, 3) == []
    )
    assert (
        check_replicas("p", {1: ReplicaCopy(0, 3, missing, [(2, 3)]), 2: ReplicaCopy(0, 3, whole)}, 3) == []
    )
    assert len(check_replicas("p", {1: ReplicaCopy(0, 3, whole), 2: ReplicaCopy(0, 3, wrong)}, 3)) == 1
    assert len(check_replicas("p", {1: ReplicaCopy(0, 3, whole), 2: ReplicaCopy(0, 3, missing)}, 3)) == 1
