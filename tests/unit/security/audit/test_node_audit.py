"""What the audit log says of callers over HTTP and gRPC, and of what a node does by itself."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.encryption import Rotated
from penstock.core.metadata.access import (
    AclOperation,
    ApiKey,
    ResourceType,
    ScramMechanism,
)
from penstock.core.metadata.commands import AlterScramCredentials, CreateApiKey, SetDelegationSecret
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.core.sasl import credential_of
from penstock.core.sasl.delegation import Delegation
from penstock.node.http_gate import NodeHttpGate, PageCaller
from penstock.node.security import record_rotation
from penstock.security import Principal, Resource, Session
from penstock.security.access_control import AccessControl
from penstock.security.acls import AclRules
from penstock.security.audit import AuditLog, NodeAudit
from penstock.security.audit.file import AuditFile, read_lines
from penstock.security.audit.log import COUNTED_MS
from penstock.security.authenticator import Authenticator
from penstock.security.callers import CallerAuthenticator, CallerCredentials, api_key_digest
from penstock.security.delegations import Delegations
from penstock.security.key_uses import ApiKeyUses
from penstock.security.quotas import ClientQuotas
from penstock.security.sessions import CallerProtocol
from penstock.server.gateway.pages import STATEMENT_HEADER
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.unit.core.metadata.clusters import cluster, perform

HOST, PASSWORD, SECRET = "10.0.0.7", "alices-password", "s" * 40
KEY_ID = "0123456789abcdef"
KEY = f"pk_{KEY_ID}_{SECRET}"
FIELDS = ("principal", "host", "listener", "api", "operation", "resource", "decision", "mechanism", "details")


class Tokens:
    """Knows no token."""

    def verify(self, token: str, done: Any) -> None:
        done("the token has expired")


class Desk:
    """A node that knows alice, her password and her API key, and its audit log."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.timers = HandTimers()
        runtime = hand_runtime(self.timers, HandSyncs())
        machine = cluster()
        perform(machine, SetDelegationSecret(b"s" * 32))
        credential = credential_of("alice", ScramMechanism.SCRAM_SHA_256, PASSWORD, b"salt")
        perform(machine, AlterScramCredentials("alice", (credential,)))
        key = ApiKey(KEY_ID, "alice", api_key_digest(KEY), Timestamp(1))
        perform(machine, CreateApiKey(key))
        self._delegations, uses = Delegations(self.timers), ApiKeyUses(self.timers)
        authenticator = Authenticator(runtime, ("PLAIN",), None, self._delegations)
        authenticator.on_metadata(machine.image)
        self._delegations.on_metadata(machine.image)
        log = AuditLog(runtime, 7, AuditFile(self._directory, 1 << 24, 3))
        self.audit = NodeAudit(log)
        self._callers = CallerAuthenticator(
            runtime, self._delegations, authenticator, Tokens(), None, uses, audit=self.audit
        )
        control = AccessControl(AclRules(frozenset()), ClientQuotas(), self.timers.now)
        self.gate = NodeHttpGate(self._callers, self._delegations, control, self.audit)
        self.authorizer = control

    def identify(self, credentials: CallerCredentials, protocol: CallerProtocol = "REST") -> None:
        self._callers.identify(credentials, HOST, lambda _: None, protocol)

    def lines(self) -> list[dict[str, Any]]:
        self.timers.pass_ms(20_000)
        return [json.loads(line) for line in read_lines(self._directory)]

    def told(self) -> list[tuple[Any, ...]]:
        return [tuple(line[name] for name in FIELDS) for line in self.lines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "audit")


def basic(user: str, password: str) -> CallerCredentials:
    return CallerCredentials("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def test_a_login_says_who_came_from_where_by_which_protocol_and_means(desk: Desk) -> None:
    desk.identify(CallerCredentials(api_key=KEY))
    desk.identify(CallerCredentials(f"Bearer {KEY}"), "gRPC")
    desk.identify(basic("alice", PASSWORD), "WebSocket")

    alice = "User:alice", HOST
    login = "login", "alice", "allowed"
    assert sorted(desk.told()) == [
        (*alice, "grpc", "gRPC", *login, "API-KEY", [f"API key {KEY_ID}"]),
        (*alice, "http", "REST", *login, "API-KEY", [f"API key {KEY_ID}"]),
        (*alice, "http", "WebSocket", *login, "BASIC", []),
    ]


def test_a_failed_login_says_whom_it_was_about_and_why(desk: Desk) -> None:
    desk.identify(CallerCredentials(api_key=f"pk_{KEY_ID}_{'x' * 40}"), "gRPC")
    desk.identify(basic("alice", "a-guess"))
    desk.identify(CallerCredentials("Bearer eyJsecret"))
    desk.identify(CallerCredentials("Digest zzz"), "WebSocket")
    desk.identify(CallerCredentials(f"Bearer {KEY}", KEY))

    lines = {line["error"]: line for line in desk.lines()}

    assert {error: (line["api"], line["resource"], line["mechanism"]) for error, line in lines.items()} == {
        f"API key {KEY_ID}: unknown or wrong": ("gRPC", "alice", "API-KEY"),
        "alice: unknown user or wrong password": ("REST", "alice", "BASIC"),
        "the token has expired": ("REST", None, "OAUTHBEARER"),
        "an Authorization that is not accepted here": ("WebSocket", None, None),
        "both Authorization and X-API-Key": ("REST", None, None),
    }
    assert {line["decision"] for line in lines.values()} == {"refused"}
    assert lines[f"API key {KEY_ID}: unknown or wrong"]["details"] == [f"API key {KEY_ID}"]


def test_what_says_nothing_of_itself_is_no_login(desk: Desk) -> None:
    desk.identify(CallerCredentials())
    desk.identify(CallerCredentials(api_key=KEY))

    assert len(desk.lines()) == 1


def test_guessed_keys_and_repeated_logins_are_counted_in_one_line(desk: Desk) -> None:
    for number in range(50):
        desk.identify(CallerCredentials(api_key=f"pk_{number:016}_{'x' * 40}"))
        desk.identify(CallerCredentials(api_key=KEY))
    desk.timers.pass_ms(COUNTED_MS)

    counts = {(line["decision"], line["error"]): 0 for line in desk.lines()}
    for line in desk.lines():
        counts[line["decision"], line["error"]] += line["count"]

    assert counts == {("allowed", None): 50, ("refused", "unknown API key"): 50}
    assert len(desk.lines()) == 4


def test_no_line_has_a_secret(desk: Desk, tmp_path: Path) -> None:
    desk.identify(CallerCredentials(api_key=KEY))
    desk.identify(CallerCredentials(f"Bearer pk_{KEY_ID}_{'x' * 40}"))
    desk.identify(CallerCredentials("Bearer pk_not-a-key-but-a-secret"))
    desk.identify(CallerCredentials("Bearer eyJsecret"))
    desk.identify(basic("alice", PASSWORD))
    desk.identify(basic("alice", "a-guess"))
    assert desk.lines()

    written = b"".join(read_lines(str(tmp_path / "audit"))).decode()
    for secret in (SECRET, "x" * 40, "secret", PASSWORD, "a-guess", "YWxpY2U6"):
        assert secret not in written


def test_what_a_page_refuses_is_told_once_a_minute(desk: Desk) -> None:
    caller = PageCaller(Delegation("bob", HOST, Timestamp(0)), desk.authorizer, desk.audit)
    for _ in range(20):
        assert not caller.may_see_pages()
    desk.timers.pass_ms(COUNTED_MS)

    assert desk.told()[0] == (
        *("User:bob", HOST, "http", "page", "describe", "kafka-cluster", "refused"),
        *(None, []),
    )
    assert [line["count"] for line in desk.lines()] == [1, 19]


def test_a_forged_statement_is_a_failed_login(desk: Desk) -> None:
    desk.gate.admit([(STATEMENT_HEADER, "AAAA.AAAA")], HOST, None, lambda _: None)

    (line,) = desk.lines()
    assert (line["decision"], line["mechanism"]) == ("refused", "PENSTOCK-DELEGATE")
    assert line["error"] == "the statement is not signed by this cluster"


def test_a_master_key_that_was_too_old_is_rotated_in_the_name_of_the_node(desk: Desk) -> None:
    record_rotation(desk.audit, Rotated("key-2", is_new=True))
    record_rotation(desk.audit, Rotated("key-2", is_new=False))
    for _ in range(3):
        record_rotation(desk.audit, ApiError(ErrorKind.STORAGE_FAILED, "no key"))

    made, failed = desk.lines()
    assert (made["principal"], made["api"], made["error"]) == ("Node:7", "RotateMasterKey", None)
    assert made["details"][-1] == "current key key-2"
    assert "no key" in failed["error"]


def test_names_that_callers_make_up_are_cut(desk: Desk) -> None:
    desk.identify(basic("u" * 10_000, "x"))
    session = Session(Principal("User", "b" * 10_000), "http", "", HOST, "User:" + "b" * 10_000)
    desk.audit.page_refused(
        session, AclOperation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, "t" * 10_000)
    )

    assert all(len(json.dumps(line)) < 2_000 for line in desk.lines())
