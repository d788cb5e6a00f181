"""A node with security on: handshakes, logins, refusals, and what administrators may add."""

import itertools
import ssl
import time
from collections.abc import Callable
from functools import partial

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.nodes import SASL_PLAINTEXT, SASL_SSL, NodeSetup
from penstock.client.connection import BrokerConnection
from penstock.client.connection_security import ConnectionSecurity
from penstock.core.metadata.access import (
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from penstock.core.protocol import ErrorCode, Message, RequestHeader, api, request_frame
from penstock.core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityPart,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOperation,
)
from penstock.core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestUpsertion,
)
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsRequestAcl
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.core.sasl.scram import salted_password

SECURED = NodeSetup(is_secured=True)
USER, PASSWORD = "nobody-in-particular", "a password that somebody guessed"
ITERATIONS = 4_096
secured = AttackTable("secured")


def _client_context() -> ssl.SSLContext:
    """Of a client that believes everyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _hello() -> bytes:
    """What a client of TLS says first."""
    outgoing = ssl.MemoryBIO()
    client = _client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


@secured.attack("tls-hellos", setup=SECURED, is_alone=True)
def tls_hellos(attacker: Attacker) -> None:
    """900 connections begin a TLS handshake in the same moment, and leave; over and over."""
    hello = _hello()
    for _ in attacker.rounds():
        held = attacker.sockets(900, partial(attacker.secured, SASL_SSL))
        for one in held:
            one.setblocking(False)
        for one in held:
            try:
                one.sendall(hello)
                attacker.counts["hellos"] += 1
            except OSError:
                attacker.counts["disconnected"] += 1
        attacker.pause(0.3)
        for one in held:
            one.close()


@secured.attack("tls-handshakes", setup=SECURED, processes=2, is_alone=True)
def tls_handshakes(attacker: Attacker) -> None:
    """Complete TLS handshakes, one after the other, of clients that say nothing then."""
    context = _client_context()
    for number in attacker.rounds():
        try:
            with context.wrap_socket(attacker.open(attacker.secured(SASL_SSL, number))):
                attacker.counts["handshakes"] += 1
        except OSError:
            attacker.counts["disconnected"] += 1
            attacker.pause()


@secured.attack("tls-silence", setup=SECURED, is_alone=True)
def tls_silence(attacker: Attacker) -> None:
    """Connections to a TLS listener that are opened by the thousand, and say nothing."""
    held = []
    for number in attacker.rounds():
        try:
            held.append(attacker.open(attacker.secured(SASL_SSL, number)))
            attacker.counts["connections"] += 1
        except OSError:
            attacker.counts["refused"] += 1
            attacker.pause()
        if len(held) > 5_000:
            held.pop(0).close()
    for one in held:
        one.close()


def _framed(request: Message, version: int) -> bytes:
    key = request.__schema__.api_key
    assert key is not None
    return bytes(request_frame(api(key), RequestHeader(key, version, 1, "attacker"), request))


def _guess(attacker: Attacker, mechanism: str, message: Callable[[int], bytes]) -> None:
    """Begin logins as ever new users on ever new connections, and wait for nobody's answer."""
    shake_hands = _framed(SaslHandshakeRequest(mechanism=mechanism), 1)
    held = []
    for number in attacker.rounds():
        try:
            held.append(attacker.open(attacker.secured(SASL_PLAINTEXT, number)))
            held[-1].sendall(shake_hands + _framed(SaslAuthenticateRequest(auth_bytes=message(number)), 1))
            attacker.counts["guesses"] += 1
        except OSError:
            attacker.counts["disconnected"] += 1
            attacker.pause()
        if len(held) > 500:
            held.pop(0).close()
    for one in held:
        one.close()


@secured.attack("sasl-plain-guesses", setup=SECURED, is_alone=True)
def sasl_plain_guesses(attacker: Attacker) -> None:
    """Logins with PLAIN as ever new users, each of which costs the node thousands of hashes."""
    _guess(attacker, "PLAIN", lambda number: f"\0guess-{number}\0password-{number}".encode())


@secured.attack("sasl-scram-guesses", setup=SECURED, is_alone=True)
def sasl_scram_guesses(attacker: Attacker) -> None:
    """Logins with SCRAM as ever new users, that are begun and never finished."""
    _guess(attacker, "SCRAM-SHA-512", lambda number: f"n,,n=guess-{number},r=nonce{number}".encode())


def _add_user(attacker: Attacker) -> None:
    salt = b"salt of an attacker"
    mechanism = ScramMechanism.SCRAM_SHA_512
    request = AlterUserScramCredentialsRequest(
        deletions=(),
        upsertions=(
            AlterUserScramCredentialsRequestUpsertion(
                name=USER,
                mechanism=mechanism.value,
                iterations=ITERATIONS,
                salt=salt,
                salted_password=salted_password(mechanism, PASSWORD, salt, ITERATIONS),
            ),
        ),
    )
    connection = attacker.connect()
    try:
        code = connection.ask(request).results[0].error_code
        if code:
            attacker.counts[f"user: {ErrorCode(code).name}"] += 1
    finally:
        connection.close()
    time.sleep(0.5)


@secured.attack("refusals", setup=SECURED, prepare=_add_user, processes=2, is_alone=True)
def refusals(attacker: Attacker) -> None:
    """Requests for ever new topics by a user without rights, each of which belongs in the audit log."""
    login = ConnectionSecurity(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        topics = tuple(
            MetadataRequestTopic(name=f"secret-{attacker.number}-{next(numbers)}") for _ in range(100)
        )
        attacker.ask(connection, MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        attacker.counts["refused"] += len(topics)

    def connect() -> BrokerConnection:
        return BrokerConnection(
            attacker.secured(SASL_PLAINTEXT), client_id="attacker", request_seconds=20, security=login
        )

    attacker.insist(step, connect)


def _noted(attacker: Attacker, codes: list[int]) -> None:
    for code in codes:
        attacker.counts[ErrorCode(code).name] += 1


@secured.attack("acl-floods", setup=SECURED, is_alone=True)
def acl_floods(attacker: Attacker) -> None:
    """An administrator adds access rules, 1,000 in a request, and never stops."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        rules = tuple(
            CreateAclsRequestAcl(
                resource_type=ResourceType.TOPIC.value,
                resource_name=f"flood-{next(numbers)}",
                resource_pattern_type=PatternType.LITERAL.value,
                principal=f"User:flood-{attacker.number}",
                host="*",
                operation=AclOperation.READ.value,
                permission_type=AclPermission.ALLOW.value,
            )
            for _ in range(1_000)
        )
        answer = attacker.ask(connection, CreateAclsRequest(creations=rules))
        _noted(attacker, [one.error_code for one in answer.results])

    attacker.insist(step)


@secured.attack("user-floods", setup=SECURED, is_alone=True)
def user_floods(attacker: Attacker) -> None:
    """An administrator adds users, 1,000 in a request, and never stops."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        users = tuple(
            AlterUserScramCredentialsRequestUpsertion(
                name=f"flood-{next(numbers)}",
                mechanism=ScramMechanism.SCRAM_SHA_512.value,
                iterations=ITERATIONS,
                salt=b"salt",
                salted_password=b"\1" * 64,
            )
            for _ in range(1_000)
        )
        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=users)
        _noted(attacker, [one.error_code for one in attacker.ask(connection, request).results])

    attacker.insist(step)


@secured.attack("quota-floods")
def quota_floods(attacker: Attacker) -> None:
    """Quotas for ever new client ids, 1,000 in a request, and a request of each of some of them."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        entries = tuple(
            AlterClientQuotasRequestEntry(
                entity=(
                    AlterClientQuotasRequestEntityPart(
                        entity_type="client-id", entity_name=f"flood-{next(numbers)}"
                    ),
                ),
                ops=(AlterClientQuotasRequestOperation(key="producer_byte_rate", value=1e6, remove=False),),
            )
            for _ in range(1_000)
        )
        request = AlterClientQuotasRequest(entries=entries, validate_only=False)
        _noted(attacker, [one.error_code for one in attacker.ask(connection, request).entries])

    attacker.insist(step)
