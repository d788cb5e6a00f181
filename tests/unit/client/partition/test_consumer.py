"""Records, ends of logs and errors come in one row, and none of the records is lost between the others."""

from confluent_kafka import KafkaError, Message

from penstock.client.consumer import poll_result


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, value=b"v", timestamp=(1, 5))


def trouble(code: int, offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=KafkaError(code))


def test_records_that_follow_the_end_of_the_log_are_kept_and_it_is_the_end_no_more() -> None:
    end = trouble(KafkaError._PARTITION_EOF, 2)

    came = poll_result([record(1), end, record(2), record(3)])

    assert [row.offset for row in came.rows] == [1, 2, 3]
    assert (came.log_end, came.refusal) == (None, None)


def test_the_last_end_of_the_log_is_the_one_that_counts() -> None:
    ends = [trouble(KafkaError._PARTITION_EOF, offset) for offset in (1, 2)]

    came = poll_result([ends[0], record(1), ends[1]])

    assert ([row.offset for row in came.rows], came.log_end) == ([1], 2)


def test_what_comes_after_an_error_is_left_for_the_next_try() -> None:
    came = poll_result([record(1), trouble(KafkaError.OFFSET_OUT_OF_RANGE, 2), record(3)])

    assert ([row.offset for row in came.rows], came.refusal) == ([1], "OFFSET_OUT_OF_RANGE")
