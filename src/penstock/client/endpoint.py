"""Which broker to talk to, and the settings that all our clients pass to librdkafka."""

import logging
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.core.model import PenstockError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
# Long enough for a broker that is busy, short enough for somebody who waits.
REACH_SECONDS = 4.0
# A handshake and a login take work on both sides, and there may be little time for it.
REACH_SECURED_SECONDS = 10.0
CONNECT_SECONDS = 2.0
REQUEST_SECONDS = 15.0
OWN_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class ClientError(PenstockError):
    """A broker returned an error, or did not do what was asked of it."""

    # Whether the same call may succeed a moment later.
    retriable = False


class Disconnected(ClientError):
    """A broker closed the connection, did not respond in time, or broke the protocol; a retry may help."""

    retriable = True


class BrokerUnreachable(Disconnected):
    """No broker responds at the bootstrap addresses."""


def no_broker(where: str, why: str) -> BrokerUnreachable:
    """Nobody listens there; what helps is said to whoever has just begun."""
    return BrokerUnreachable(
        f"no broker at {where}: {why} (`penstock up` starts one, --bootstrap names another)"
    )


def client_error(what: str, error: Any) -> ClientError:
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


class InvalidAddress(PenstockError):
    """A bootstrap address that is none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Bootstrap addresses, and settings passed on to librdkafka as they are."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    # Never shown: there may be a password among them.
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def settings(self, **more: Any) -> dict[str, Any]:
        """A configuration for librdkafka; underscores of keyword arguments stand for dots.

        Callbacks (`error_cb`) are no settings of librdkafka, and keep theirs.
        """
        ours = {
            name if name.endswith("_cb") else name.replace("_", "."): value for name, value in more.items()
        }
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "penstock",
            "broker.address.family": "any",
            "socket.nagle.disable": True,
            "allow.auto.create.topics": True,
            **ours,
            **self.options,
        }

    @property
    def is_plaintext(self) -> bool:
        """Whether a plain socket may be used too, beside librdkafka."""
        return self.options.get("security.protocol", "plaintext").strip().lower() == "plaintext"

    @property
    def needs_librdkafka(self) -> bool:
        """Whether the login is one that our own connections do not have."""
        protocol = self.options.get("security.protocol", "plaintext").strip().lower()
        mechanism = self.options.get("sasl.mechanism") or self.options.get("sasl.mechanisms") or ""
        return protocol.startswith("sasl") and mechanism not in OWN_MECHANISMS

    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap addresses, taken apart; there is at least one."""
        found = [_address(part.strip()) for part in self.bootstrap.split(",") if part.strip()]
        if not found:
            raise InvalidAddress(f"no host:port in {self.bootstrap!r}")
        return found


def quiet() -> logging.Logger:
    """Where librdkafka's log lines go: nowhere."""
    logger = logging.getLogger("penstock.client.librdkafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def opened(kind: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """A Producer, Consumer or AdminClient of librdkafka; a setting that it does not know is a ClientError."""
    from confluent_kafka import KafkaException

    # A Ctrl-C in the middle would come out as a TypeError about a setting. The client's threads
    # inherit the mask, which is right: signals are for the thread that waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        return kind(settings, logger=quiet())
    except (KafkaException, ValueError, TypeError) as error:
        raise ClientError(f"librdkafka rejects a setting: {reason(error)}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reach(endpoint: Endpoint) -> Any:
    """The cluster's metadata, as librdkafka describes it; BrokerUnreachable within a few seconds."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    check_reachable(endpoint)
    client = opened(AdminClient, endpoint.settings())
    try:
        return client.list_topics(timeout=REACH_SECONDS if endpoint.is_plaintext else REACH_SECURED_SECONDS)
    except KafkaException as error:
        raise BrokerUnreachable(
            f"{endpoint.bootstrap} does not respond as a Kafka broker: {reason(error)}"
        ) from None


def check_reachable(endpoint: Endpoint) -> None:
    """Find out at once that nobody listens; librdkafka would try again until its time is up."""
    addresses = endpoint.addresses()
    failure: OSError | None = None
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_SECONDS / len(addresses)).close()
        except OSError as error:
            failure = error
        else:
            return
    assert failure is not None
    why = failure.strerror or str(failure) or type(failure).__name__
    raise no_broker(endpoint.bootstrap, why.lower())


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, DEFAULT_PORT
    if not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise InvalidAddress(f"not a host:port: {text!r}")
    return host.strip("[]"), int(port)
