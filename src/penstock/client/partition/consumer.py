"""An assignment of one partition, and what came of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.client.endpoint import REQUEST_SECONDS, Endpoint, opened
from penstock.client.errors import BrokerUnreachable, reason, refused

_LOG_APPEND_TIME = 2
# Nothing gets better by waiting for these.
_HOPELESS = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED")


class Row(NamedTuple):
    """One record."""

    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Came(NamedTuple):
    """Records; the end of the log, if it was reached; librdkafka's name of an error, if there was one."""

    rows: list[Row]
    log_end: int | None = None
    refusal: str | None = None


class PartitionConsumer:
    """Reads where it is told to."""

    def __init__(self, endpoint: Endpoint, *, committed_only: bool) -> None:
        from confluent_kafka import Consumer

        self.unreachable = ""
        self._hopeless = ""
        self._refusal: str | None = None
        settings = endpoint.settings(
            group_id="penstock-pipeline",
            auto_offset_reset="error",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            allow_auto_create_topics=False,
            check_crcs=True,
            # A topic that is not there is reported at once; who reads knows how long to wait.
            topic_metadata_propagation_max_ms=0,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            error_cb=self._failed,
        )
        self._consumer: Any = opened(Consumer, settings)

    def close(self) -> None:
        self._consumer.close()

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Go on from `offset`."""
        from confluent_kafka import TopicPartition

        self._refusal = None
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def unassign(self) -> None:
        self._consumer.unassign()

    def next(self, records_max: int, seconds: float) -> Came:
        """What comes within `seconds`; ClientError where waiting is of no use."""
        from confluent_kafka import KafkaException

        try:
            messages = self._consumer.consume(records_max, seconds)
        except KafkaException as error:
            raise refused("consuming", error) from None
        if self._hopeless and not messages:
            raise BrokerUnreachable(self._hopeless)
        if self._refusal is not None and not messages:
            refusal, self._refusal = self._refusal, None
            return Came([], refusal=refusal)
        return came_of(messages)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Where the log starts and ends now; None while nobody can say."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            start, end = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=REQUEST_SECONDS, cached=False
            )
        except KafkaException:
            return None
        return start, end

    def _failed(self, error: Any) -> None:
        # What is wrong with a topic comes here as well, not in place of its records.
        if error.name() in _HOPELESS:
            self._hopeless = reason(error)
        elif not error.name().startswith("_"):
            self._refusal = error.name()
        self.unreachable = reason(error)


def came_of(messages: Sequence[Any]) -> Came:
    """What messages amount to; those behind an error are left for whoever asks again from there."""
    rows: list[Row] = []
    log_end: int | None = None
    for message in messages:
        trouble = message.error()
        if trouble is None:
            # The log may have gone on while we waited at its end.
            rows.append(_row(message))
            log_end = None
        elif trouble.name() == "_PARTITION_EOF":
            log_end = message.offset()
        else:
            return Came(rows, refusal=trouble.name())
    return Came(rows, log_end)


def _row(message: Any) -> Row:
    kind, timestamp_ms = message.timestamp()
    return Row(
        message.offset(),
        timestamp_ms,
        kind == _LOG_APPEND_TIME,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
