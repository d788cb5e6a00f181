"""Users: clients that log in and do what they may, or try to, and those who change what that is.

A user reads and writes a topic that only users have, at the listener where one logs in: once by its
password, and once more by an API key, as gateways do it for their callers. What it is told is compared with
what the node's metadata said at the time (`checkers/access.py`).

    admin      rules come and go, that allow and that deny, of the topic itself and of prefixes of its name;
               the password, an API key and a quota change
    user       logs in (now and then with a password of old), writes with acks=all, reads and waits for more
    API key    any node says whose it is; with that statement its client logs in at any other

Left out: hosts, groups and transactional ids; rights to anything but topics.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from penstock.core.metadata.access import (
    ANY_HOST,
    CONSUMER_BYTE_RATE,
    USER,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from penstock.core.protocol import ErrorCode
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
from penstock.core.protocol.messages.create_api_key import CreateApiKeyRequest
from penstock.core.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from penstock.core.protocol.messages.delete_api_key import DeleteApiKeyRequest
from penstock.core.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.core.protocol.messages.produce import ProduceResponsePartition
from penstock.core.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.core.sasl import DELEGATE, credential_of
from penstock.core.sasl.delegation import SignedDelegation
from penstock.core.sasl.scram import ScramClient, salted_password
from penstock.runtime import Address
from penstock.security.callers import CallerCredentials, NotIdentified
from penstock.sim.checkers.access import AccessView, Asked
from penstock.sim.cluster.clients.admin import MetadataChange, MetadataClient
from penstock.sim.cluster.clients.client import (
    ClusterNodes,
    KnownLeader,
    PacedClient,
    SimulatedClient,
    VersionPolicy,
)
from penstock.sim.cluster.clients.connection import ClientConnection
from penstock.sim.cluster.clients.consumers import FetchClient, rows_of
from penstock.sim.cluster.clients.producers import ALL_ACKS, SimulatedProducer
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.node import ApiKeyRegister, PasswordRegister, QuotaRegister, RuleRegister
from penstock.sim.cluster.options import PRIVATE, SASL_PORT, name_of
from penstock.sim.values import batch_of

MECHANISM = ScramMechanism.SCRAM_SHA_256
# The fewest that a controller takes.
ITERATIONS = 4_096
SALT_BYTES = 8
QUOTA_BYTES = (300, 3_000)
OPERATIONS = (AclOperation.READ, AclOperation.WRITE)
PREFIXES = ("p", "priv")
# How often a user tries a password that it had before, or writes, or asks a node that does not lead.
OLD_PASSWORD, WRITE, ELSEWHERE = 0.15, 0.4, 0.1
BACK_TO_START = 0.1
WITH_SESSION = 0.5
WAITS_MS = (0, 100, 500)
FETCH_BYTES = 700
# A failed login is answered after a while.
LOGIN_NS = 12_000_000_000
IDENTIFIED_MS = 500
# The first epoch of a fetch session, and that of a fetch without one.
FIRST_EPOCH, SESSIONLESS_EPOCH = 0, -1
# Kafka's number of a key that never ends.
NEVER = -1


class ApiKeySecret(NamedTuple):
    """An API key, as its owner has it."""

    id: str
    secret: str


@dataclass(slots=True, eq=False)
class SimulatedUser:
    """What a user, and whoever administers it, know of its credentials."""

    name: str
    # The newest one that was acknowledged, and those before.
    password: str = ""
    old_passwords: list[str] = field(default_factory=list)
    api_key: ApiKeySecret | None = None


class UserAdmin(MetadataClient):
    """Changes what one user may, and how it logs in."""

    def __init__(self, nodes: ClusterNodes, host: str, user: SimulatedUser, pace_ms: float) -> None:
        # Rules of prefixes are younger than the oldest versions.
        super().__init__(nodes, host, VersionPolicy.NEWEST)
        self._user = user
        self._pace_ms = pace_ms
        # Those that were acknowledged.
        self._rules: dict[AclBinding, None] = {}
        self._made = 0

    def start(self) -> None:
        self._set_password()

    def _rest(self) -> None:
        self.journal.access.changes += 1
        if not self._stopped:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._step)

    def _step(self) -> None:
        luck = self.luck.random()
        if luck < 0.7:
            self._change_rules()
        elif luck < 0.8:
            self._set_password()
        elif luck < 0.92:
            self._change_api_key()
        else:
            self._change_quota()

    def _change_rules(self) -> None:
        operation = self.luck.choice(OPERATIONS)
        allowing = [rule for rule in self._rules if rule.operation is operation and _allows(rule)]
        denying = [rule for rule in self._rules if rule.operation is operation and not _allows(rule)]
        if not allowing:
            self._add(self._rule(operation, AclPermission.ALLOW))
        elif denying and self.luck.random() < 0.7:
            self._remove(self.luck.choice(denying))
        elif self.luck.random() < 0.5:
            self._remove(self.luck.choice(allowing))
        else:
            self._add(self._rule(operation, AclPermission.DENY))

    def _rule(self, operation: AclOperation, permission: AclPermission) -> AclBinding:
        is_literal = self.luck.random() < 0.5
        return AclBinding(
            ResourceType.TOPIC,
            PatternType.LITERAL if is_literal else PatternType.PREFIXED,
            PRIVATE if is_literal else self.luck.choice(PREFIXES),
            f"User:{self._user.name}",
            ANY_HOST,
            operation,
            permission,
        )

    def _add(self, rule: AclBinding) -> None:
        def added() -> None:
            self._rules[rule] = None
            self._rest()

        self._wish(_creation(rule), added)

    def _remove(self, rule: AclBinding) -> None:
        def removed() -> None:
            del self._rules[rule]
            self._rest()

        self._wish(_deletion(rule), removed)

    def _set_password(self) -> None:
        self._made += 1
        user, password = self._user, f"password {self._made} of {self._user.name}"
        salt = self.luck.randbytes(SALT_BYTES)

        def changed() -> None:
            user.old_passwords += [user.password] if user.password else []
            user.password = password
            self._rest()

        self._wish(_password(user.name, password, salt), changed)

    def _change_api_key(self) -> None:
        user = self._user
        if user.api_key is not None:

            def revoked() -> None:
                user.api_key = None
                self._rest()

            self._wish(_key_deletion(user.api_key.id), revoked)
            return
        self._made += 1
        id_ = hashlib.sha256(f"{user.name} {self._made}".encode()).hexdigest()[:16]
        made = ApiKeySecret(id_, f"pk_{id_}_{self.luck.randbytes(16).hex()}")

        def created() -> None:
            user.api_key = made
            self._rest()

        self._wish(_key_creation(user.name, made), created)

    def _change_quota(self) -> None:
        value = self.luck.choice((None, *QUOTA_BYTES))
        self._wish(_quota(self._user.name, value), self._rest)

    def _gives_up(self, wish: MetadataChange, _code: ErrorCode) -> bool:
        self.journal.failures.append(f"unexpected error: {self.host} got {_code.name} for {wish.register}")
        return True


class UserClient(PacedClient, SimulatedProducer, FetchClient):
    """Logs in where it has something to do, and does one thing after the other."""

    topic = PRIVATE

    def __init__(
        self,
        nodes: ClusterNodes,
        host: str,
        user: SimulatedUser,
        places: Sequence[Place],
        pace_ms: float,
        *,
        by_key: bool = False,
    ) -> None:
        super().__init__(nodes, host, pace_ms)
        self._addresses = {node_id: Address(name_of(node_id), SASL_PORT) for node_id in self._addresses}
        self._user = user
        self._by_key = by_key
        # Finds leaders, which users need not be allowed to.
        self._lookup = SimulatedClient(nodes, host)
        self._lookup.topics = (PRIVATE,)
        self._positions = dict.fromkeys(places, 0)
        self._made = 0
        # Connections that are logged in, with the API key that they are by, and their fetch sessions.
        self._logged_in: dict[int, tuple[ClientConnection, str]] = {}
        self._sessions: dict[ClientConnection, tuple[int, int]] = {}
        self._attempts = 0

    def leader(self, place: Place) -> KnownLeader | None:
        return self._lookup.leader(place)

    def topic_id(self, topic: str) -> Any:
        return self._lookup.topic_id(topic)

    def _act(self) -> None:
        place = self.luck.choice(list(self._positions))
        leader = self.leader(place)
        if leader is None:
            self._look_around()
            return
        if self.luck.random() < ELSEWHERE:
            leader = leader._replace(node_id=self.any_node())
        known = self._logged_in.get(leader.node_id)
        if known is None or known[0].is_over or known[0] is not self._connections.get(leader.node_id):
            self._log_in(leader.node_id)
        elif self.luck.random() < WRITE:
            self._write(leader, place, known[1])
        else:
            self._read(leader, place, known)

    def _look_around(self) -> None:
        self.after_ms(self.backoff_ms(), self._lookup.refresh_metadata, self._rest)

    def _asked(self, node_id: int, operation: AclOperation, api_key: str) -> Asked:
        return Asked(self._user.name, node_id, operation, PRIVATE, api_key)

    # Logging in

    def _log_in(self, node_id: int) -> None:
        before = self._connections.pop(node_id, None)
        if before is not None:
            before.close()
        self._logged_in.pop(node_id, None)
        if self._by_key:
            self._identify(node_id)
        else:
            self._log_in_by_password(node_id)

    def _log_in_by_password(self, node_id: int) -> None:
        user = self._user
        if not user.password:
            self._rest()
            return
        password = user.password
        if user.old_passwords and self.luck.random() < OLD_PASSWORD:
            password = user.old_passwords[-1]
        client = ScramClient(MECHANISM, user.name, password, self.luck.randbytes(12).hex())
        node, access = self.nodes.node(node_id), self.journal.access
        mark = node.access_mark()

        def observe(response: SaslAuthenticateResponse) -> None:
            seen = user.name, MECHANISM, password, node.access_views(mark)
            if response.error_code == ErrorCode.NONE:
                access.logged_in(*seen)
            elif response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                access.login_refused(*seen)

        self._exchange(node_id, MECHANISM.sasl_name, client.first(), client.last, observe, "")

    def _identify(self, node_id: int) -> None:
        """Have any node say who has the API key, and log in by that at another."""
        api_key, process = self._user.api_key, self.nodes.node(self.any_node()).process
        if api_key is None or process is None or not process.is_ready:
            self._rest()
            return
        self._attempts += 1
        attempt = self._attempts

        def identified(outcome: SignedDelegation | NotIdentified | None) -> None:
            nonlocal attempt
            if attempt != self._attempts:
                return
            self._attempts += 1
            if isinstance(outcome, SignedDelegation):
                self._exchange(node_id, DELEGATE, outcome.statement, outcome.proof, None, api_key.id)
            else:
                self._rest()

        # The process may be gone before it says anything.
        self.after_ms(IDENTIFIED_MS, identified, None)
        credentials = CallerCredentials(authorization=f"Bearer {api_key.secret}")
        process.identify(credentials, "10.0.0.7", identified)

    def _exchange(
        self,
        node_id: int,
        mechanism: str,
        first: bytes,
        last: Callable[[bytes], bytes],
        observe: Callable[[SaslAuthenticateResponse], None] | None,
        api_key: str,
    ) -> None:
        """Two messages after the handshake; rest when it is over, however it ended."""

        def shaken(reply: object) -> None:
            if isinstance(reply, SaslHandshakeResponse) and reply.error_code == ErrorCode.NONE:
                self.ask(node_id, SaslAuthenticateRequest(auth_bytes=first), 2, challenged)
            else:
                self._rest()

        def challenged(reply: object) -> None:
            if not isinstance(reply, SaslAuthenticateResponse) or reply.error_code != ErrorCode.NONE:
                self._rest()
                return
            proof = SaslAuthenticateRequest(auth_bytes=last(bytes(reply.auth_bytes)))
            self.ask(node_id, proof, 2, finished, observe, LOGIN_NS)

        def finished(reply: object) -> None:
            if isinstance(reply, SaslAuthenticateResponse) and reply.error_code == ErrorCode.NONE:
                self._logged_in[node_id] = self._connections[node_id], api_key
            self._rest()

        self.ask(node_id, SaslHandshakeRequest(mechanism=mechanism), 1, shaken)

    # Writing and reading

    def _write(self, leader: KnownLeader, place: Place, api_key: str) -> None:
        self._made += 1
        value = b"%s/%d/%d" % (self.host.encode(), place[1], self._made)
        sent = self.journal.log(*place).sent_in_any_order
        sent.append(value)
        node = self.nodes.node(leader.node_id)
        asked, mark = self._asked(leader.node_id, AclOperation.WRITE, api_key), node.access_mark()

        def answered(reply: object) -> None:
            if not isinstance(reply, ProduceResponsePartition):
                self._look_around()
                return
            views = node.access_views(mark)
            if reply.error_code == ErrorCode.NONE:
                self.journal.access.allowed(asked, views)
                self.journal.log(*place).acknowledged[value] = reply.base_offset
            elif reply.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.journal.access.refused(asked, views)
                # If it is in the log all the same, nobody has sent it.
                sent.remove(value)
            else:
                self._look_around()
                return
            self._rest()

        content = batch_of([value], keyed=self.journal.is_compacted)
        self.produce(leader, place, content, 1, ALL_ACKS, answered)

    def _read(self, leader: KnownLeader, place: Place, known: tuple[ClientConnection, str]) -> None:
        connection, api_key = known
        if self.luck.random() < BACK_TO_START:
            self._positions[place] = 0
        position, version = self._positions[place], self.fetch_version()
        session, epoch = self._sessions.get(connection, (0, SESSIONLESS_EPOCH))
        if connection not in self._sessions and self.luck.random() < WITH_SESSION:
            epoch = FIRST_EPOCH
        request = FetchRequest(
            max_wait_ms=self.luck.choice(WAITS_MS),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=session,
            session_epoch=epoch,
            topics=self.fetch_topics([(place, position, -1)]),
            forgotten_topics_data=(),
        )
        node = self.nodes.node(leader.node_id)
        asked, mark = self._asked(leader.node_id, AclOperation.READ, api_key), node.access_mark()
        report = self.observing_fetch(leader.node_id, ())

        def observe(response: FetchResponse) -> None:
            report(response)
            self._observe_read(asked, response, node.access_views(mark))

        def answered(reply: object) -> None:
            if not isinstance(reply, FetchResponse) or reply.error_code:
                self._sessions.pop(connection, None)
                self._look_around()
                return
            if epoch != SESSIONLESS_EPOCH and reply.session_id:
                self._sessions[connection] = reply.session_id, epoch + 1
            self._take(place, reply)

        self.ask(leader.node_id, request, version, answered, observe)

    def _observe_read(self, asked: Asked, response: FetchResponse, views: Sequence[AccessView]) -> None:
        access = self.journal.access
        if response.throttle_time_ms:
            access.told_to_wait(asked.user, views)
        for row in rows_of(response):
            if row.error_code == ErrorCode.NONE:
                access.allowed(asked, views)
                if row.records:
                    newest = self.nodes.newest_image()
                    is_live = self.journal.is_live(asked.node)
                    # The node itself is up.
                    assert newest is not None
                    access.shown(asked, views, AccessView.of(newest), is_live=is_live)
            elif row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                access.refused(asked, views)

    def _take(self, place: Place, reply: FetchResponse) -> None:
        """Go on behind what was read; a session may show other partitions as well."""
        has_moved = False
        for row in rows_of(reply):
            there = (PRIVATE, row.partition_index)
            if row.error_code == ErrorCode.NONE:
                position = self._positions[there] if there == place else 0
                records, end = self.records_of(row, position)
                for offset, value in records:
                    self.journal.log(*there).saw(offset, value)
                if there == place:
                    self._positions[place] = end
            else:
                has_moved = has_moved or row.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if has_moved:
            self._look_around()
        else:
            self._rest()


def _allows(rule: AclBinding) -> bool:
    return rule.permission is AclPermission.ALLOW


def _first(rows: str) -> Callable[[Any], Any]:
    return lambda response: getattr(response, rows)[0]


def _creation(rule: AclBinding) -> MetadataChange:
    creation = CreateAclsRequestAcl(
        resource_type=rule.resource,
        resource_name=rule.name,
        resource_pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
    request = CreateAclsRequest(creations=(creation,))
    return MetadataChange(
        RuleRegister(rule), True, CreateAclsRequest, partial(_same, request), _first("results"), None
    )


def _deletion(rule: AclBinding) -> MetadataChange:
    which = DeleteAclsRequestFilter(
        resource_type_filter=rule.resource,
        resource_name_filter=rule.name,
        pattern_type_filter=rule.pattern,
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
    request = DeleteAclsRequest(filters=(which,))
    return MetadataChange(
        RuleRegister(rule), False, DeleteAclsRequest, partial(_same, request), _first("filter_results"), None
    )


def _password(user: str, password: str, salt: bytes) -> MetadataChange:
    upsertion = AlterUserScramCredentialsRequestUpsertion(
        name=user,
        mechanism=MECHANISM,
        iterations=ITERATIONS,
        salt=salt,
        salted_password=salted_password(MECHANISM, password, salt, ITERATIONS),
    )
    request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))
    return MetadataChange(
        PasswordRegister(user, MECHANISM),
        credential_of(user, MECHANISM, password, salt, ITERATIONS).stored_key,
        AlterUserScramCredentialsRequest,
        partial(_same, request),
        _first("results"),
        None,
    )


def _key_creation(user: str, made: ApiKeySecret) -> MetadataChange:
    digest = hashlib.sha256(made.secret.encode()).digest()
    request = CreateApiKeyRequest(id=made.id, user=user, digest=digest, expires_ms=NEVER)
    # No two have one id: whoever asks again, and is told that it is in use, has made it before.
    already = ErrorCode.INVALID_REQUEST
    return MetadataChange(
        ApiKeyRegister(made.id), True, CreateApiKeyRequest, partial(_same, request), _itself, already
    )


def _key_deletion(id_: str) -> MetadataChange:
    request = DeleteApiKeyRequest(id=id_)
    already = ErrorCode.RESOURCE_NOT_FOUND
    return MetadataChange(
        ApiKeyRegister(id_), False, DeleteApiKeyRequest, partial(_same, request), _itself, already
    )


def _quota(user: str, value: float | None) -> MetadataChange:
    entity = AlterClientQuotasRequestEntityPart(entity_type=USER, entity_name=user)
    change = AlterClientQuotasRequestOperation(
        key=CONSUMER_BYTE_RATE, value=0.0 if value is None else value, remove=value is None
    )
    entry = AlterClientQuotasRequestEntry(entity=(entity,), ops=(change,))
    request = AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    return MetadataChange(
        QuotaRegister(user), value, AlterClientQuotasRequest, partial(_same, request), _first("entries"), None
    )


def _same(request: Any, _version: int) -> Any:
    return request


def _itself(response: Any) -> Any:
    return response
