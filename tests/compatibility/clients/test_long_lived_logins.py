"""Clients that stay: over the end of their logins, over new tokens, keys and certificates, and with each TLS.

Logins of this node end after two seconds. Who logs in again in time (KIP-368) goes on, and so does, on a new
connection, who cannot: what a client writes and reads meanwhile has no gap either way.
"""

import asyncio
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import aiokafka.abc
import kafka
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from benchmarks.peers.maven import PeerUnavailable
from penstock.client import ConsumerOptions, Disconnected, TopicConsumer
from penstock.client.connection import connect
from penstock.core.protocol.messages.metadata import MetadataRequest
from penstock.runtime.loop import MachineClock
from tests.compatibility.clients import java_programs, test_kafkajs
from tests.compatibility.clients.client import PATIENCE_SECONDS, wait_until
from tests.compatibility.clients.logins import TOKEN, Outcome
from tests.compatibility.clients.test_logins import (
    ALLOWED,
    Program,
    kafkajs_client,
    python_settings,
    warnings_of,
)
from tests.compatibility.secured_node import Login, SecuredNode, java_token, penstock, secured_node
from tests.support.clusters import until

REAUTHENTICATE_MS = 2_000
# Some three logins long.
TIMES, PAUSE_SECONDS = 40, 0.15
TOKEN_SECONDS = 4
VALUE = "still here"
TLS_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Resident(Protocol):
    """A client that writes a record and reads it, again and again, on the same connections if it can."""

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome: ...


def token_in(directory: Path) -> str:
    return java_token(directory).read_text()


def note(failures: list[KafkaError | None], failure: KafkaError | None, _: object) -> None:
    failures.append(failure)


class ConfluentKafka:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _token(self, _: object) -> tuple[str, float]:
        """The token, and when another is wanted."""
        return token_in(self._directory), MachineClock().wall() / 1_000 + TOKEN_SECONDS / 2

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome:
        if tls is not None:
            pytest.skip("librdkafka has no setting for versions of TLS")
        settings: dict[str, Any] = {**login.librdkafka(), "log_level": 0}
        if login.mechanism == TOKEN:
            settings["oauth_cb"] = self._token
        fatal: list[KafkaError] = []
        settings["error_cb"] = lambda error: fatal.append(error) if error.fatal() else None
        producer = Producer(settings)
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        try:
            for number in range(times):
                failures: list[KafkaError | None] = []
                producer.produce(topic, VALUE, callback=partial(note, failures))
                wait_until(partial(bool, failures), partial(producer.poll, 0.05), "a word about the record")
                assert failures == [None]
                if number == 0:
                    consumer.subscribe([topic])
                found = consumer.consume(1, PATIENCE_SECONDS)
                assert [message.value() for message in found] == [VALUE.encode()]
                time.sleep(PAUSE_SECONDS)
        finally:
            consumer.close()
        assert fatal == []
        return Outcome.SERVED


class KafkaPythonTokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def token(self) -> str:
        return token_in(self._directory)


def with_version(settings: dict[str, Any], tls: str | None) -> dict[str, Any]:
    """The settings of a Python client, for one version of TLS and no other."""
    if tls is not None:
        context = settings["ssl_context"]
        context.minimum_version = context.maximum_version = TLS_VERSIONS[tls]
    return settings


class KafkaPython:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome:
        settings = with_version(python_settings(login), tls)
        if login.mechanism == TOKEN:
            settings["sasl_oauth_token_provider"] = KafkaPythonTokens(self._directory)
        with warnings_of("kafka"):
            try:
                producer = kafka.KafkaProducer(**settings, bootstrap_timeout_ms=3_000)
            except kafka.errors.KafkaTimeoutError:
                return Outcome.NOT_CONNECTED
            consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
            try:
                for _ in range(times):
                    producer.send(topic, VALUE.encode()).get(PATIENCE_SECONDS)
                    assert next(consumer).value == VALUE.encode()
                    time.sleep(PAUSE_SECONDS)
            finally:
                consumer.close()
                producer.close(timeout=5)
        return Outcome.SERVED


class AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def token(self) -> str:
        return token_in(self._directory)


class Aiokafka:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome:
        with warnings_of("aiokafka"):
            try:
                asyncio.run(self._stay(login, topic, times, tls))
            except aiokafka.errors.KafkaConnectionError:
                return Outcome.NOT_CONNECTED
        return Outcome.SERVED

    async def _stay(self, login: Login, topic: str, times: int, tls: str | None) -> None:
        settings = with_version(python_settings(login), tls)
        if login.mechanism == TOKEN:
            settings["sasl_oauth_token_provider"] = AiokafkaTokens(self._directory)
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, VALUE.encode())
            consumer = aiokafka.AIOKafkaConsumer(
                topic, group_id=topic, auto_offset_reset="earliest", **settings
            )
            async with consumer:
                for number in range(times):
                    message = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
                    assert message.value == VALUE.encode()
                    if number + 1 < times:
                        await asyncio.sleep(PAUSE_SECONDS)
                        await producer.send_and_wait(topic, VALUE.encode())
        finally:
            await producer.stop()


class Kafkajs:
    def __init__(self, directory: Path) -> None:
        if test_kafkajs.NODE is None or not (test_kafkajs.MODULES / "kafkajs").is_dir():
            pytest.skip(f"kafkajs is not installed ({test_kafkajs.MODULES} is made by `make setup` with npm)")
        self._directory = directory
        script = test_kafkajs.DRIVER.with_name("visits.js")
        self._program = Program(
            [str(test_kafkajs.NODE), str(script)], {"NODE_PATH": str(test_kafkajs.MODULES)}
        )

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome:
        client = kafkajs_client(login)
        if login.mechanism == TOKEN:
            client["sasl"] = {"mechanism": "oauthbearer", "tokenFile": str(java_token(self._directory))}
        if tls is not None:
            client["ssl"] |= {"minVersion": f"TLSv{tls}", "maxVersion": f"TLSv{tls}"}
        pause_ms = int(PAUSE_SECONDS * 1_000)
        return self._program.ask(client=client, topic=topic, value=VALUE, times=times, pauseMs=pause_ms)

    def stop(self) -> None:
        self._program.stop()


class Java:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        token = java_token(directory)
        try:
            command = java_programs.command(directory, "Visits")
        except PeerUnavailable as reason:
            pytest.skip(f"Kafka's client cannot be run here: {reason}")
        self._program = Program(
            [command[0], f"{ALLOWED}.urls={token.as_uri()}", f"{ALLOWED}.files={token}", *command[1:]]
        )

    def stay(self, login: Login, topic: str, times: int, tls: str | None = None) -> Outcome:
        settings = login.java(self._directory) | {"max.block.ms": "30000"}
        if login.mechanism == TOKEN:
            settings |= {
                "sasl.login.refresh.buffer.seconds": "0",
                "sasl.login.refresh.min.period.seconds": "0",
                "sasl.login.refresh.window.factor": "0.5",
            }
        if tls is not None:
            settings["ssl.enabled.protocols"] = f"TLSv{tls}"
        pause_ms = int(PAUSE_SECONDS * 1_000)
        return self._program.ask(settings=settings, topic=topic, value=VALUE, times=times, pauseMs=pause_ms)

    def stop(self) -> None:
        self._program.stop()


KINDS: tuple[Callable[[Path], Resident], ...] = (ConfluentKafka, KafkaPython, Aiokafka, Kafkajs, Java)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    settings = (
        "groups.initial_rebalance_delay_ms=0",
        f"security.sasl.reauthenticate_ms={REAUTHENTICATE_MS}",
        "security.oauth.refresh_ms=1000",
        "security.tls.client_auth=need",
    )
    with secured_node(tmp_path_factory.mktemp("long-lived"), *settings) as started:
        yield started


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: str(kind.__name__))
def resident(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    made = request.param(tmp_path_factory.mktemp("resident"))
    yield made
    if hasattr(made, "stop"):
        made.stop()


@contextmanager
def fresh_tokens(node: SecuredNode, directory: Path) -> Iterator[None]:
    """A file that always has a token which counts for a moment yet."""
    done = threading.Event()
    file = java_token(directory)

    def write() -> None:
        written = file.with_suffix(".new")
        written.write_text(node.issuer.token("alice", TOKEN_SECONDS))
        written.rename(file)

    def keep() -> None:
        while not done.wait(TOKEN_SECONDS / 8):
            write()

    write()
    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def with_certificate(node: SecuredNode, protocol: str, mechanism: str = "") -> Login:
    return node.login(protocol, mechanism, pair=node.pair("alice"), stem="alice")


def stored(node: SecuredNode, topic: str) -> list[bytes | None]:
    with TopicConsumer(node.endpoint(), topic, ConsumerOptions()) as reader:
        return [record.value for batch in reader.batches() for record in batch]


@contextmanager
def staying(resident: Resident, login: Login, topic: str) -> Iterator["Future[Outcome]"]:
    """Let a client stay in a thread of its own, from when it has written something."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(resident.stay, login, topic, TIMES)


def test_a_client_goes_on_over_the_ends_of_its_logins(
    resident: Resident, node: SecuredNode, fresh: Callable[[str], str]
) -> None:
    topic = fresh("alice")

    assert resident.stay(with_certificate(node, "SASL_SSL", "SCRAM-SHA-512"), topic, TIMES) is Outcome.SERVED
    assert stored(node, topic) == [VALUE.encode()] * TIMES


def test_a_client_goes_on_with_new_tokens_while_their_issuer_changes_its_key(
    resident: Resident, node: SecuredNode, fresh: Callable[[str], str]
) -> None:
    topic = fresh("alice")
    directory = resident._directory  # type: ignore[attr-defined]

    with fresh_tokens(node, directory), staying(resident, token_login(node, directory), topic) as stays:
        # The second time takes back the key that the client began with.
        for share in (0, TIMES * 2 // 3):
            until(lambda least=share: written(node, topic) > least, "the client has got so far")  # type: ignore[misc]
            node.issuer.rotate()

        assert stays.result(120) is Outcome.SERVED
    assert stored(node, topic) == [VALUE.encode()] * TIMES


def test_a_client_stays_connected_while_the_node_gets_another_certificate(
    resident: Resident, node: SecuredNode, fresh: Callable[[str], str]
) -> None:
    topic = fresh("alice")
    login = with_certificate(node, "SSL")

    with staying(resident, login, topic) as stays:
        until(lambda: written(node, topic) > 0, "the client has begun")
        before = served_certificate(login)
        replace_certificate(node)
        until(lambda: served_certificate(login) != before, "newcomers see the new certificate")

        assert stays.result(120) is Outcome.SERVED
    assert stored(node, topic) == [VALUE.encode()] * TIMES
    assert resident.stay(login, fresh("alice"), 1) is Outcome.SERVED


@pytest.mark.parametrize("tls", TLS_VERSIONS)
@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-256")])
def test_a_client_that_speaks_one_version_of_tls_is_served(
    resident: Resident,
    node: SecuredNode,
    fresh: Callable[[str], str],
    protocol: str,
    mechanism: str,
    tls: str,
) -> None:
    assert (
        resident.stay(with_certificate(node, protocol, mechanism), fresh("alice"), 1, tls) is Outcome.SERVED
    )


def token_login(node: SecuredNode, directory: Path) -> Login:
    """A login with the token that lies in the file: what is in there changes."""
    login = with_certificate(node, "SASL_SSL", TOKEN)
    return Login(**{**vars(login), "secret": token_in(directory)})


def written(node: SecuredNode, topic: str) -> int:
    """How many records there are, before there is a topic, too."""
    return len(stored(node, topic)) if (node.node.data_dir / "logs" / topic).is_dir() else 0


def replace_certificate(node: SecuredNode) -> None:
    """Give the node another certificate of the same authority, while it runs."""
    renewed = node.root / f"renewed-{node.new_name()}"
    renewed.mkdir(mode=0o700)
    for file in ("ca.pem", "ca.key"):
        shutil.copy(node.root / "certs" / file, renewed / file)
    penstock("certs", "node", "1", "--dir", str(renewed))
    for file in ("node-1.pem", "node-1.key"):
        (renewed / file).rename(node.root / "certs" / file)


def served_certificate(login: Login) -> bytes | None:
    """What a newcomer is shown."""
    host, _, port = login.address.rpartition(":")
    context = ssl.create_default_context(cafile=login.authority)
    assert login.pair is not None
    context.load_cert_chain(*login.pair)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True)


def test_who_does_not_log_in_again_is_closed(node: SecuredNode) -> None:
    connection = connect(node.endpoint("alice"))
    request = MetadataRequest(topics=())
    connection.ask(request)

    with pytest.raises(Disconnected):
        until(lambda: connection.ask(request) is None, "the login ends")
    connection.close()


@pytest.fixture(scope="module")
def node_of_today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("today"), "security.tls.version_min=1.3") as started:
        yield started


@pytest.mark.parametrize("kind", [KafkaPython, Aiokafka])
def test_a_node_that_speaks_tls_1_3_alone_turns_others_away(
    node_of_today: SecuredNode,
    tmp_path: Path,
    fresh: Callable[[str], str],
    kind: Callable[[Path], Resident],
) -> None:
    login = with_certificate(node_of_today, "SSL")

    assert kind(tmp_path).stay(login, fresh("alice"), 1, "1.2") is Outcome.NOT_CONNECTED
    assert kind(tmp_path).stay(login, fresh("alice"), 1, "1.3") is Outcome.SERVED
