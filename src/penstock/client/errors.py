"""What librdkafka complains about, in one line for the person who typed."""

from typing import Any

from penstock.core.model import PenstockError


class ClientError(PenstockError):
    """A broker refused, or did not do what was asked of it."""


class Disconnected(ClientError):
    """A broker hung up, was silent for too long, or does not speak our protocol; another try may help."""


class BrokerUnreachable(Disconnected):
    """Nobody answers at the bootstrap addresses."""


def no_broker(where: str, why: str) -> BrokerUnreachable:
    """Nobody listens there; what helps is said to whoever has just begun."""
    return BrokerUnreachable(
        f"no broker at {where}: {why} (`penstock up` starts one, --bootstrap names another)"
    )


def refused(what: str, error: Any) -> ClientError:
    """`what` could not be done because of a KafkaError, or an exception that carries one."""
    why = reason(error)
    # Brokers often name the thing themselves; once is enough.
    return ClientError(why if what.rpartition(" ")[2] in why else f"{what}: {why}")


def reason(error: Any) -> str:
    """The reason in a KafkaError or KafkaException, without its codes and its side of the wire."""
    arguments = getattr(error, "args", ())
    if arguments and hasattr(arguments[0], "str"):
        error = arguments[0]
    if not hasattr(error, "str"):
        return str(error) or type(error).__name__
    text = str(error.str())
    for prefix in ("Broker: ", "Local: "):
        text = text.replace(prefix, "")
    return f"{text[:1].lower()}{text[1:]}" if text[1:2].islower() else text
