"""Every anomaly of a partition has a history that shows it, and a good history shows none."""

from penstock.sim.checkers.log import LogHistory, check_compacted_copy, check_log
from penstock.sim.values import key_of


def kinds(history: LogHistory, final: list[tuple[int, bytes]]) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in check_log(history, final)]


def test_a_good_history_shows_nothing() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"]}, sent_in_any_order=[b"x", b"y"])
    history.acknowledged = {b"a": 0, b"b": 2}
    history.told_by_leader = {b"x": 1, b"y": 3}
    history.sought("c")
    history.polled("c", [(0, b"a"), (1, b"x"), (2, b"b")])
    history.sought("c")
    history.polled("c", [(0, b"a")])

    # y was acknowledged by the leader alone, and may be lost.
    assert kinds(history, [(0, b"a"), (1, b"x"), (2, b"b")]) == []


def test_an_acknowledged_value_that_readers_passed_is_lost() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"]}, acknowledged={b"a": 0})
    history.saw(1, b"b")

    assert kinds(history, [(1, b"b")]) == ["lost"]


def test_an_acknowledged_value_that_nobody_got_to_is_unseen() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"]}, acknowledged={b"a": 0, b"b": 1})

    assert kinds(history, [(0, b"a")]) == ["unseen"]


def test_a_value_that_was_read_must_not_vanish_whoever_acknowledged_it() -> None:
    history = LogHistory(sent_in_any_order=[b"x"], told_by_leader={b"x": 0})
    history.saw(0, b"x")

    assert kinds(history, []) == ["lost"]


def test_what_the_leader_alone_acknowledged_may_vanish_but_not_move() -> None:
    history = LogHistory(sent_in_any_order=[b"x", b"y"], told_by_leader={b"x": 0, b"y": 7})

    assert kinds(history, [(0, b"y")]) == ["moved"]


def test_one_offset_with_two_values_is_inconsistent() -> None:
    history = LogHistory(sent={"p": [b"a"], "q": [b"b"]})
    history.saw(0, b"a")
    history.saw(0, b"b")

    assert "inconsistent" in kinds(history, [(0, b"a")])


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert kinds(LogHistory(sent={"p": [b"a"]}), [(0, b"a"), (1, b"a")]) == ["duplicate"]


def test_the_order_of_a_producer_counts() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"], "q": [b"c"]})

    assert kinds(history, [(0, b"b"), (1, b"c"), (2, b"a")]) == ["out of order"]


def test_a_value_that_nobody_sent_is_unexpected() -> None:
    assert kinds(LogHistory(), [(0, b"a")]) == ["unexpected"]


def test_a_consumer_that_was_taken_past_a_record_was_made_to_skip() -> None:
    history = LogHistory(sent={"p": [b"a", b"b", b"c"]})
    history.sought("c")
    history.polled("c", [(0, b"a")])
    history.polled("c", [(2, b"c")])

    assert kinds(history, [(0, b"a"), (1, b"b"), (2, b"c")]) == ["poll skip"]


def test_a_consumer_that_was_given_a_record_again_was_taken_back() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"]})
    history.sought("c")
    history.polled("c", [(0, b"a"), (1, b"b")])
    history.polled("c", [(1, b"b")])

    assert kinds(history, [(0, b"a"), (1, b"b")]) == ["poll back"]


def test_what_was_read_at_an_offset_is_there_at_the_end() -> None:
    history = LogHistory(sent={"p": [b"a"]}, sent_in_any_order=[b"x", b"y"])
    history.saw(0, b"a")
    history.saw(1, b"x")

    assert kinds(history, [(0, b"a"), (1, b"x")]) == []
    assert kinds(history, [(0, b"a"), (1, b"y")]) == ["replaced"]
    assert kinds(history, [(0, b"a")]) == ["lost"]
    assert kinds(history, [(0, b"a"), (1, b"y"), (2, b"x")]) == ["moved"]


def test_one_value_read_at_two_offsets_is_wrong_at_one_of_them() -> None:
    history = LogHistory(sent={"p": [b"a", b"b"]})
    history.saw(1, b"a")
    history.saw(0, b"a")

    assert kinds(history, [(0, b"a"), (1, b"b")]) == ["moved"]


def test_compaction_may_take_what_has_a_newer_record_of_its_key_and_nothing_else() -> None:
    old, new = same_key()
    history = LogHistory(sent={"p": [old, new]}, acknowledged={old: 0, new: 5}, is_compacted=True)

    assert check_log(history, [(5, new)]) == []
    assert check_log(history, [(0, old)]) == [f"unseen: {new!r} was acknowledged at 5"]


def test_each_replica_of_a_compacted_partition_has_the_newest_record_of_every_key() -> None:
    old, new = same_key()
    history = LogHistory(sent={"p": [old, new]}, acknowledged={old: 0, new: 5}, is_compacted=True)
    final = [(5, new)]

    assert check_compacted_copy(history, final, [(0, old), (5, new)]) == []
    assert len(check_compacted_copy(history, final, [(0, old)])) == 2
    assert check_compacted_copy(history, final, [(5, old)])[0].startswith("inconsistent")


def test_a_consumer_may_pass_an_outdated_record_of_a_compacted_partition_and_no_other() -> None:
    old, new = same_key()
    final = [(0, b"a/1"), (1, old), (2, b"a/2"), (5, new)]
    for is_compacted, anomalies in ((True, []), (False, ["poll skip: c went from 0 to 2, past 1"])):
        history = LogHistory(sent_in_any_order=[value for _, value in final], is_compacted=is_compacted)
        history.sought("c")
        history.polled("c", [(0, b"a/1"), (2, b"a/2"), (5, new)])

        assert [found for found in check_log(history, final) if "poll" in found] == anomalies


def same_key() -> tuple[bytes, bytes]:
    values = [b"p/%d" % number for number in range(100)]
    return values[0], next(value for value in values[1:] if key_of(value) == key_of(values[0]))
