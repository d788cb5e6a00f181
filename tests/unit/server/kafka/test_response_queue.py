from collections.abc import Callable

from penstock.runtime.tcp import Part
from penstock.server.kafka.request import PendingResponse, ResponseQueue


class Wire:
    """A connection that keeps what is written to it, one entry per write."""

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
    def read(self) -> None: ...
    def close(self) -> None: ...


class Turn:
    """The end of a turn of the loop, when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[ResponseQueue] = []

    def later(self, replies: ResponseQueue) -> None:
        self._waiting.append(replies)

    def end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for replies in waiting:
            replies.flush()


def opened(replies: ResponseQueue) -> PendingResponse:
    """The slot of the next request."""
    slot = PendingResponse()
    replies.waiting.append(slot)
    return slot


def test_an_answer_waits_for_those_before_it() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    first, second, third = opened(replies), opened(replies), opened(replies)

    replies.fill(third, [b"3"])
    turn.end()
    replies.fill(second, [b"2"])
    turn.end()

    assert wire.writes == []

    replies.fill(first, [b"1"])
    turn.end()

    assert wire.writes == [[b"1", b"2", b"3"]]
    assert len(replies.waiting) == 0


def test_answers_of_one_turn_leave_in_one_write() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    slots = [opened(replies) for _ in range(3)]

    for number, slot in enumerate(slots):
        replies.fill(slot, [b"%d" % number])
    turn.end()

    assert wire.writes == [[b"0", b"1", b"2"]]


def test_what_is_answered_while_corked_leaves_with_the_flush() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    replies.is_corked = True
    replies.fill(opened(replies), [b"a"])
    turn.end()

    assert wire.writes == []

    replies.flush()

    assert wire.writes == [[b"a"]]


def test_an_answer_to_a_connection_that_is_over_goes_nowhere() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    slot = opened(replies)

    replies.abandon()
    replies.fill(slot, [b"late"])
    turn.end()

    assert wire.writes == []


def test_whoever_works_on_a_response_is_notified_that_nobody_waits_for_it_any_more() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    answered, waiting, indifferent = opened(replies), opened(replies), opened(replies)
    told: list[str] = []
    answered.abandoned = lambda: told.append("answered")
    waiting.abandoned = lambda: told.append("waiting")
    replies.fill(answered, [b"1"])

    replies.abandon()
    replies.fill(indifferent, [b"3"])
    turn.end()

    assert told == ["waiting"]
    assert wire.writes == []


def test_answers_that_wait_for_an_earlier_one_are_counted_until_they_leave() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    first, second, third = opened(replies), opened(replies), opened(replies)

    replies.fill(second, [b"22"])
    replies.fill(third, [b"3", memoryview(b"33")])
    waiting = (replies.held_bytes, wire.held_elsewhere)
    replies.fill(first, [b"1"])

    assert waiting == (5, 5)
    assert (replies.held_bytes, wire.held_elsewhere) == (0, 0)


def test_what_waited_is_not_held_for_a_connection_that_is_over() -> None:
    wire, turn = Wire(), Turn()
    replies = ResponseQueue(wire, turn.later, wire.moved)
    first, second = opened(replies), opened(replies)
    replies.fill(second, [b"22"])

    replies.abandon()
    replies.fill(first, [b"1"])

    assert (replies.held_bytes, wire.held_elsewhere) == (0, 0)
