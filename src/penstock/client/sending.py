"""Sending records, and keeping account of what became of them."""

from dataclasses import dataclass
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.client.errors import ClientError, reason

TURN_SECONDS = 0.1
NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """How records are put together and who must have them."""

    acks: str = "all"
    codec: str = "none"
    linger_ms: int = 5
    batch_bytes: int = 16_384
    timeout_ms: int = 30_000


@dataclass(slots=True)
class Sent:
    """The account: what was handed over, what arrived, and the first reason why something did not."""

    records: int = 0
    value_bytes: int = 0
    delivered: int = 0
    failed: int = 0
    reason: str = ""


class Sender:
    """Sends to one topic; keys go where the Java client would put them."""

    def __init__(self, endpoint: Endpoint, topic: str, options: SenderOptions) -> None:
        from confluent_kafka import Producer

        settings = endpoint.settings(
            acks=options.acks,
            compression_type=options.codec,
            linger_ms=options.linger_ms,
            batch_size=max(1, options.batch_bytes),
            message_timeout_ms=options.timeout_ms,
            enable_idempotence=options.acks == "all",
            partitioner="murmur2_random",
        )
        self._producer: Any = opened(Producer, settings)
        self._topic = topic
        self.sent = Sent()

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = NO_PARTITION,
        timestamp_ms: int = 0,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Hand over one record, waiting while the client's queue is full; the first failure ends it."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=timestamp_ms,
                    headers=headers,
                )
                break
            except BufferError:
                self._producer.poll(TURN_SECONDS)
            except KafkaException as error:
                self._note_failure(error)
                break
        self.sent.records += 1
        self.sent.value_bytes += len(value or b"")
        if not self.sent.records % 1_000:
            self._producer.poll(0)
        self._raise_failure()

    def finish(self) -> Sent:
        """Wait until everything was delivered, or raise the reason why it was not."""
        # librdkafka gives up on a record after `timeout_ms`, so this ends.
        while self._producer.flush(TURN_SECONDS):
            self._raise_failure()
        self._raise_failure()
        return self.sent

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.sent.delivered += 1
        else:
            self._note_failure(error)

    def _note_failure(self, error: Any) -> None:
        self.sent.failed += 1
        self.sent.reason = self.sent.reason or reason(error)

    def _raise_failure(self) -> None:
        sent = self.sent
        if sent.failed:
            # What is still on its way is of no use to somebody who was told that it failed.
            self._producer.purge()
            raise ClientError(
                f"{self._topic}: a record was not delivered ({sent.reason}); {sent.delivered} were before it"
            )
