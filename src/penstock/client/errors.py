"""What can go wrong in `Producer` and `Consumer`: one class per thing that a program does about it.

    RequestFailed          a broker or librdkafka refused; `name` is Kafka's name of the error
      DeliveryFailed       a record was not stored
      TransactionAborted   nothing of the transaction is visible; it can be done again
      FatalFailure         this client is of no use any more: make a new one
        ProducerFenced     another producer has taken over the transactional id
    DeadlineExceeded       it took too long, and may still happen
    InvalidProperty        a setting that does not exist, or not for this client

`penstock.client.serialization` adds SerializationFailed.
All are ClientErrors with a text of one line, and all say whether a repetition may help (`retriable`).
"""

from typing import Any

from penstock.client.endpoint import ClientError, reason

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"})
# Nothing gets better by waiting for these, though librdkafka does.
HOPELESS = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
# librdkafka calls these permanent; a program that waits a moment has a good chance.
_PASSING = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_QUEUE_FULL",
        "_WAIT_COORD",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REBALANCE_IN_PROGRESS",
        "CONCURRENT_TRANSACTIONS",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "THROTTLING_QUOTA_EXCEEDED",
    }
)


class RequestFailed(ClientError):
    """A broker or librdkafka refused what was asked of it."""

    def __init__(self, text: str, name: str = "", *, retriable: bool = False) -> None:
        super().__init__(text)
        self.name = name
        self.retriable = retriable


class DeliveryFailed(RequestFailed):
    """A record was not stored, or nobody knows whether it was."""

    def __init__(self, text: str, name: str = "", *, retriable: bool = False, topic: str = "") -> None:
        super().__init__(text, name, retriable=retriable)
        self.topic = topic


class TransactionAborted(RequestFailed):
    """The transaction was aborted: nothing of it is visible, and it can be done again."""


class FatalFailure(RequestFailed):
    """The client is of no use any more; a new one is."""


class ProducerFenced(FatalFailure):
    """Another producer has taken over the transactional id: this one is a zombie and must end."""


class DeadlineExceeded(ClientError):
    """The time given was not enough; what was asked for may still happen."""

    retriable = True


class InvalidProperty(ClientError):
    """A setting that does not exist, or means nothing to this kind of client."""


def kafka_error(error: Any) -> Any:
    """The KafkaError in an exception of librdkafka, or the error itself."""
    arguments = getattr(error, "args", ())
    return arguments[0] if arguments and hasattr(arguments[0], "name") else error


def failure(what: str, error: Any) -> RequestFailed:
    """The exception for a KafkaError, or for an exception that carries one."""
    error = kafka_error(error)
    name = error.name() if hasattr(error, "name") else type(error).__name__
    text = f"{what}: {reason(error)}"
    if name in _FENCED:
        return ProducerFenced(f"{what}: another producer with this transactional id has taken over", name)
    if hasattr(error, "fatal") and error.fatal():
        return FatalFailure(text, name)
    return RequestFailed(text, name, retriable=is_retriable(error))


def is_retriable(error: Any) -> bool:
    """Whether a KafkaError may go away by itself."""
    return bool(hasattr(error, "retriable") and error.retriable()) or (
        hasattr(error, "name") and error.name() in _PASSING
    )
