"""Clients that nobody here wrote, with every way to log in that they have."""

import asyncio
import gc
import json
import logging
import shutil
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from benchmarks.peers.maven import PeerUnavailable
from tests.compatibility.clients import java_programs, test_kafkajs
from tests.compatibility.clients.child import Child
from tests.compatibility.clients.client import PATIENCE_SECONDS, wait_until
from tests.compatibility.clients.logins import TOKEN, WITH_TOKEN, EveryLogin, Outcome
from tests.compatibility.secured_node import PASSWORD_MECHANISMS, Login, SecuredNode, java_token

VALUE = b"hello " * 5_000
KCAT = shutil.which("kcat")
# Java's client reads tokens from where it is told to, if that is allowed.
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
FAR_AWAY = 4_102_444_800
LIBRDKAFKA_OUTCOMES = {
    KafkaError._AUTHENTICATION: Outcome.LOGIN_REFUSED,
    KafkaError._SSL: Outcome.NOT_CONNECTED,
    KafkaError._TRANSPORT: Outcome.NOT_CONNECTED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Outcome.DENIED,
}
# kafka-python says why in its log only, and goes on trying; aiokafka says it there, too.
BOOTSTRAP_MS = 1_500


class ConfluentKafka:
    def visit(self, login: Login, topic: str) -> Outcome:
        settings: dict[str, Any] = {**login.librdkafka(), "log_level": 0}
        if login.mechanism == TOKEN:
            settings["oauth_cb"] = lambda _: (login.secret, FAR_AWAY)
        errors: list[KafkaError | None] = []
        producer = Producer({**settings, "error_cb": errors.append})
        producer.produce(topic, VALUE, callback=lambda error, _: errors.append(error))
        wait_until(lambda: bool(errors), lambda: producer.poll(0.1), "a word about the record")
        if errors[0] is not None:
            producer.purge()
            producer.flush(1)
            return LIBRDKAFKA_OUTCOMES[errors[0].code()]
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found = consumer.consume(1, PATIENCE_SECONDS)
        consumer.close()
        assert [(message.error(), message.value()) for message in found] == [(None, VALUE)]
        return Outcome.SERVED


class TestConfluentKafka(EveryLogin):
    """confluent-kafka: the newest librdkafka."""

    @pytest.fixture
    def visitor(self) -> ConfluentKafka:
        return ConfluentKafka()


class Kcat:
    """The command, which says on stderr what is wrong, and would try again for ever."""

    def visit(self, login: Login, topic: str) -> Outcome:
        settings = [word for pair in login.librdkafka().items() for word in ("-X", "=".join(pair))]
        command = [str(KCAT), *settings, "-X", "message.timeout.ms=3000"]
        wrote = self._run([*command, "-P", "-t", topic, "-p", "0"], VALUE)
        if wrote.returncode != 0 or b"Delivery failed" in wrote.stderr:
            return self._outcome(wrote.stderr.decode())
        read = self._run(
            [*command, "-X", "auto.offset.reset=earliest", "-c", "1", "-D", "", "-G", topic, topic]
        )
        assert read.stdout == VALUE, read.stderr
        return Outcome.SERVED

    def _run(self, command: list[str], stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )

    def _outcome(self, said: str) -> Outcome:
        if "authentication failed" in said.lower():
            return Outcome.LOGIN_REFUSED
        if "Topic authorization failed" in said:
            return Outcome.DENIED
        assert "SSL" in said or "All broker connections are down" in said, said
        return Outcome.NOT_CONNECTED


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")
class TestKcat(EveryLogin):
    """kcat 1.7: an old librdkafka. Debian's has no way to get a token that is signed."""

    LACKS = WITH_TOKEN

    @pytest.fixture
    def visitor(self) -> Kcat:
        return Kcat()

    def test_a_token_that_nobody_signed_does_not_log_in(self, secured: SecuredNode) -> None:
        settings = secured.login("SASL_SSL", TOKEN).librdkafka() | {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=alice scope=penstock lifeSeconds=600",
        }
        words = [word for pair in settings.items() for word in ("-X", "=".join(pair))]

        done = subprocess.run(
            [str(KCAT), *words, "-L"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )

        assert done.returncode != 0
        assert "authentication failed" in done.stderr.lower(), done.stderr


def python_settings(login: Login) -> dict[str, Any]:
    """What kafka-python and aiokafka have in common."""
    settings: dict[str, Any] = {
        "bootstrap_servers": login.address,
        "security_protocol": login.protocol,
    }
    if login.is_encrypted:
        settings["ssl_context"] = context = ssl.create_default_context(cafile=str(login.authority))
        if login.pair is not None:
            context.load_cert_chain(*login.pair)
    if login.mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.mechanism in PASSWORD_MECHANISMS:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.secret}
    return settings


class KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class WarningTexts(logging.Handler):
    """What a library has to say."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def warnings_of(library: str) -> Iterator[list[str]]:
    """What a library says meanwhile; sockets that it forgets are gone afterwards."""
    handler, logger = WarningTexts(), logging.getLogger(library)
    logger.addHandler(handler)
    try:
        yield handler.said
    finally:
        logger.removeHandler(handler)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def why_not(said: list[str]) -> Outcome:
    """What kept a client from a connection, as far as it says that."""
    is_told = any("SaslAuthenticationFailed" in each for each in said)
    return Outcome.LOGIN_REFUSED if is_told else Outcome.NOT_CONNECTED


class KafkaPython:
    def visit(self, login: Login, topic: str) -> Outcome:
        settings = {**python_settings(login), "bootstrap_timeout_ms": BOOTSTRAP_MS}
        if login.mechanism == TOKEN:
            settings["sasl_oauth_token_provider"] = KafkaPythonToken(login.secret)
        with warnings_of("kafka") as said:
            try:
                self._round_trip(settings, topic)
            except kafka.errors.TopicAuthorizationFailedError:
                return Outcome.DENIED
            except kafka.errors.KafkaTimeoutError:
                return why_not(said)
        return Outcome.SERVED

    def _round_trip(self, settings: dict[str, Any], topic: str) -> None:
        producer = kafka.KafkaProducer(**settings, enable_idempotence=False)
        try:
            producer.send(topic, VALUE).get(PATIENCE_SECONDS)
        finally:
            producer.close(timeout=1)
        consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        try:
            assert next(consumer).value == VALUE
        finally:
            consumer.close()


class TestKafkaPython(EveryLogin):
    """kafka-python."""

    @pytest.fixture
    def visitor(self) -> KafkaPython:
        return KafkaPython()


class AiokafkaToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class Aiokafka:
    def visit(self, login: Login, topic: str) -> Outcome:
        with warnings_of("aiokafka") as said:
            try:
                asyncio.run(self._round_trip(login, topic))
            except aiokafka.errors.TopicAuthorizationFailedError:
                return Outcome.DENIED
            except aiokafka.errors.KafkaConnectionError:
                return why_not(said)
        return Outcome.SERVED

    async def _round_trip(self, login: Login, topic: str) -> None:
        settings = python_settings(login)
        if login.mechanism == TOKEN:
            settings["sasl_oauth_token_provider"] = AiokafkaToken(login.secret)
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, VALUE)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
            assert message.value == VALUE


class TestAiokafka(EveryLogin):
    """aiokafka."""

    @pytest.fixture
    def visitor(self) -> Aiokafka:
        return Aiokafka()


class Program:
    """A client in another language: takes a visit as a line of JSON, and answers with its outcome."""

    def __init__(self, command: list[str], variables: dict[str, str] | None = None) -> None:
        self._child = Child(command, variables)

    def ask(self, **visit: Any) -> Outcome:
        self._child.write(json.dumps(visit))
        lines: list[str] = []
        wait_until(
            lambda: any(line.startswith("outcome ") for line in lines),
            lambda: lines.extend(self._child.lines()),
            "what became of the visit",
        )
        said = next(line for line in lines if line.startswith("outcome "))
        assert said.split()[1] in Outcome.__members__, "\n".join(lines)
        return Outcome[said.split()[1]]

    def stop(self) -> None:
        self._child.stop()


def kafkajs_client(login: Login) -> dict[str, Any]:
    """The part of a visit that says how to come."""
    client: dict[str, Any] = {"brokers": [login.address]}
    if login.is_encrypted:
        client["ssl"] = {"ca": [login.authority.read_text()]}
        if login.pair is not None:
            client["ssl"] |= {
                "cert": login.pair.certificate.read_text(),
                "key": login.pair.key.read_text(),
            }
    if login.mechanism == TOKEN:
        client["sasl"] = {"mechanism": "oauthbearer", "token": login.secret}
    elif login.mechanism:
        mechanism = login.mechanism.lower()
        client["sasl"] = {"mechanism": mechanism, "username": login.user, "password": login.secret}
    return client


class Kafkajs:
    def __init__(self, program: Program) -> None:
        self._program = program

    def visit(self, login: Login, topic: str) -> Outcome:
        return self._program.ask(client=kafkajs_client(login), topic=topic, value=VALUE.decode())


@pytest.fixture(scope="module")
def kafkajs_program() -> Iterator[Program]:
    script = test_kafkajs.DRIVER.with_name("visits.js")
    program = Program([str(test_kafkajs.NODE), str(script)], {"NODE_PATH": str(test_kafkajs.MODULES)})
    yield program
    program.stop()


@pytest.mark.skipif(
    test_kafkajs.NODE is None or not (test_kafkajs.MODULES / "kafkajs").is_dir(),
    reason=f"kafkajs is not installed ({test_kafkajs.MODULES} is made by `make setup` where npm is there)",
)
class TestKafkajs(EveryLogin):
    """kafkajs."""

    @pytest.fixture
    def visitor(self, kafkajs_program: Program) -> Kafkajs:
        return Kafkajs(kafkajs_program)


class Java:
    def __init__(self, program: Program, directory: Path) -> None:
        self._program = program
        self._directory = directory

    def visit(self, login: Login, topic: str) -> Outcome:
        return self._program.ask(settings=login.java(self._directory), topic=topic, value=VALUE.decode())


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    directory = tmp_path_factory.mktemp("java")
    token = java_token(directory)
    try:
        command = java_programs.command(directory, "Visits")
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka's client cannot be run here: {reason}")
    program = Program(
        [command[0], f"{ALLOWED}.urls={token.as_uri()}", f"{ALLOWED}.files={token}", *command[1:]]
    )
    yield Java(program, directory)
    program.stop()


class TestJava(EveryLogin):
    """Kafka's own client."""

    @pytest.fixture
    def visitor(self, java: Java) -> Java:
        return java
