from collections.abc import Callable

from penstock.gateways.kafka.replies import Replies
from penstock.runtime.pipes import Part


class Wire:
    """A pipe that keeps what is written to it, one entry per write."""

    peer, local = "127.0.0.1:1", ("127.0.0.1", 9092)
    pending_bytes = sent_bytes = held_bytes = 0

    def __init__(self) -> None:
        self.writes: list[list[Part]] = []
        self.held_elsewhere = 0

    def account(self, moved: Callable[[int], None]) -> None: ...

    def moved(self, change: int) -> None:
        self.held_elsewhere += change

    def write(self, parts: list[Part]) -> None:
        self.writes.append(parts)

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Turn:
    """The end of a turn of the loop, when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[Replies] = []

    def later(self, replies: Replies) -> None:
        self._waiting.append(replies)

    def end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for replies in waiting:
            replies.flush()


def test_an_answer_waits_for_those_before_it() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    first, second, third = replies.open(), replies.open(), replies.open()

    third.fill([b"3"])
    turn.end()
    second.fill([b"2"])
    turn.end()

    assert wire.writes == []

    first.fill([b"1"])
    turn.end()

    assert wire.writes == [[b"1", b"2", b"3"]]
    assert len(replies) == 0


def test_answers_of_one_turn_leave_in_one_write() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    slots = [replies.open() for _ in range(3)]

    for number, slot in enumerate(slots):
        slot.fill([b"%d" % number])
    turn.end()

    assert wire.writes == [[b"0", b"1", b"2"]]


def test_what_is_answered_while_corked_leaves_with_the_flush() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    replies.cork()
    replies.open().fill([b"a"])
    turn.end()

    assert wire.writes == []

    replies.flush()

    assert wire.writes == [[b"a"]]


def test_an_answer_to_a_connection_that_is_over_goes_nowhere() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    slot = replies.open()

    replies.abandon()
    slot.fill([b"late"])
    turn.end()

    assert wire.writes == []


def test_whoever_works_on_an_answer_hears_that_nobody_waits_for_it_any_more() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    answered, waiting, indifferent = replies.open(), replies.open(), replies.open()
    told: list[str] = []
    answered.abandoned = lambda: told.append("answered")
    waiting.abandoned = lambda: told.append("waiting")
    answered.fill([b"1"])

    replies.abandon()
    indifferent.fill([b"3"])
    turn.end()

    assert told == ["waiting"]
    assert wire.writes == []


def test_answers_that_wait_for_an_earlier_one_are_counted_until_they_leave() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    first, second, third = replies.open(), replies.open(), replies.open()

    second.fill([b"22"])
    third.fill([b"3", memoryview(b"33")])
    waiting = (replies.held_bytes, wire.held_elsewhere)
    first.fill([b"1"])

    assert waiting == (5, 5)
    assert (replies.held_bytes, wire.held_elsewhere) == (0, 0)


def test_what_waited_is_not_held_for_a_connection_that_is_over() -> None:
    wire, turn = Wire(), Turn()
    replies = Replies(wire, turn.later, wire.moved)
    first, second = replies.open(), replies.open()
    second.fill([b"22"])

    replies.abandon()
    first.fill([b"1"])

    assert (replies.held_bytes, wire.held_elsewhere) == (0, 0)
