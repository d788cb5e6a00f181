"""What of requests and logins goes into the audit log.

    refused                   always
    allowed, administration   always, when it is answered: with the error that it got; an API without a row
                              in `ALLOWED` is one of these
    allowed, data             if asked for, and counted: one entry a minute for who did what to which topic
    allowed, reading          never

A filter is not a decision: what a listing leaves out was not asked for (`Request.permits`). A client that
does not wait for the answer is recorded as well, without an error that nobody knows yet.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.broker.delete_records import ALL_RECORDS
from penstock.core.metadata import ConfigResourceType
from penstock.core.metadata.access import (
    NO_EXPIRY,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from penstock.core.protocol import Api, ErrorCode
from penstock.core.protocol.codec import Message, exceeds_entries
from penstock.core.protocol.messages.queue_alter import FORGET, PAUSE, RESET, RESUME
from penstock.security import Resource, Session
from penstock.security.audit import AuditDecision, AuditEntry, AuditLog
from penstock.security.audit.entry import DETAILS_MAX, NAME_CHARS_MAX, entry_of
from penstock.security.sessions import name_key

LOGIN = "login"
LOGIN_API = "SaslAuthenticate"
TLS_API = "TLS"
# How Kafka's administrators begin the reason for which they remove a member.
REMOVED = "member was removed by an admin"
UNANSWERED = "not answered: the client has left"
# Decisions of one request to let somebody see something that are kept until it is answered.
SEEN_MAX = 1_000
# Entries in a request, its response and the decisions about it from which on a thread makes its lines.
SMALL_MAX = 100
# The same where repeats are counted, which only the loop can do.
REPEATED_MAX = 2_000


class Recorded(enum.Enum):
    """When an allowed request is recorded."""

    ALWAYS = "always"
    DATA = "data"
    NEVER = "never"


_DATA = (
    *("Produce", "Fetch", "OffsetCommit", "TxnOffsetCommit"),
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "BatchCommit"),
    *("ShareFetch", "ShareAcknowledge", "QueueReceive", "QueueSettle", "QueuePeek", "DelayRecords"),
)
_READING = (
    *("ApiVersions", "Metadata", "FindCoordinator", "ListOffsets", "OffsetFetch", "OffsetForLeaderEpoch"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"),
    *("DescribeGroups", "ListGroups", "ConsumerGroupDescribe", "ShareGroupDescribe", "QueueDescribe"),
    *("DescribeShareGroupOffsets", "DescribeTransactions", "ListTransactions", "DescribeProducers"),
    *("DescribeConfigs", "ListConfigResources", "DescribeLogDirs", "DescribeCluster", "DescribeQuorum"),
    *("DescribeAcls", "DescribeUserScramCredentials", "DescribeClientQuotas", "DescribeDelegationToken"),
    *("DescribeMasterKeys", "DescribeTopicPartitions", "ListPartitionReassignments", "ListDelays"),
    *("GetTelemetrySubscriptions", "PushTelemetry", "SaslHandshake", "SaslAuthenticate"),
)
ALLOWED: Final[dict[str, Recorded]] = {
    **dict.fromkeys(_DATA, Recorded.DATA),
    **dict.fromkeys(_READING, Recorded.NEVER),
}
# What a refusal about a resource is called in the response.
_REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# To see something is part of changing it.
_SEEING = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
Change: TypeAlias = tuple[AclOperation, Resource]
_NAMES = ("name", "topic", "topic_name", "resource_name", "group_id", "user")


class _Detail(NamedTuple):
    """What was asked for, in words; of which resource, where lines have resources of their own."""

    words: str
    resource: str = ""


class _Asker(NamedTuple):
    """Who asked for something, when, and by which request."""

    session: Session
    time_ms: int
    api: str
    correlation: int

    def entry(
        self,
        change: Change,
        decision: AuditDecision,
        error: str | None = None,
        details: tuple[str, ...] = (),
    ) -> AuditEntry:
        operation, resource = change
        return entry_of(
            *(self.session, self.time_ms, self.api, operation.name.lower()),
            (resource.kind.name.lower(), resource.name),
            decision,
            error=error,
            correlation=self.correlation,
            details=details,
        )


class AuditedRequest:
    """A request of an administrator, until it is answered."""

    __slots__ = ("changes", "message", "seen")

    def __init__(self, message: Message) -> None:
        self.message = message
        # No more than the request has rows.
        self.changes: dict[Change, None] = {}
        self.seen: dict[Change, None] = {}

    def allow(self, operation: AclOperation, resource: Resource) -> None:
        """Keep a decision."""
        if operation not in _SEEING:
            self.changes[operation, resource] = None
        elif len(self.seen) < SEEN_MAX:
            self.seen[operation, resource] = None


class AuditedCall(Protocol):
    """What the audit needs of a request."""

    api: Api
    session: Session
    correlation_id: int
    audited: AuditedRequest | None


class RequestAudit:
    """Makes entries of what the listeners of a node decide."""

    def __init__(self, log: AuditLog, *, with_data: bool) -> None:
        self._log = log
        self._with_data = with_data

    def asked(self, call: AuditedCall, message: Message) -> None:
        """A request is about to be served; not called for those that read their frames themselves."""
        if _recorded(call.api.name, message) is Recorded.ALWAYS:
            call.audited = AuditedRequest(message)

    def decided(self, call: AuditedCall, operation: AclOperation, resource: Resource, allowed: bool) -> None:
        """The caller may do something, or may not."""
        if not allowed:
            self._log.repeat(
                _kind(call, operation, resource, allowed=False), self._refusal(call, operation, resource)
            )
            return
        audited = call.audited
        if audited is not None:
            audited.allow(operation, resource)
        elif self._with_data and ALLOWED.get(call.api.name) is Recorded.DATA:
            kind = _kind(call, operation, resource, allowed=True)
            self._log.count(kind, partial(self._allowance, call, operation, resource))

    def _refusal(self, call: AuditedCall, operation: AclOperation, resource: Resource) -> AuditEntry:
        error = _REFUSALS.get(resource.kind, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self._asker(call).entry((operation, resource), AuditDecision.REFUSED, error.name)

    def _allowance(self, call: AuditedCall, operation: AclOperation, resource: Resource) -> AuditEntry:
        return self._asker(call).entry((operation, resource), AuditDecision.ALLOWED)

    def _asker(self, call: AuditedCall) -> _Asker:
        return _Asker(call.session, self._log.now_ms, call.api.name, call.correlation_id)

    def replied(self, call: AuditedCall, response: Message) -> None:
        """A request of an administrator is answered."""
        audited, call.audited = call.audited, None
        if audited is None:
            return
        self._settle(call, audited, response)

    def abandoned(self, call: AuditedCall) -> None:
        """The client has left before its request was answered; what it asked for may still be done."""
        audited, call.audited = call.audited, None
        if audited is not None:
            self._settle(call, audited, None)

    def _settle(self, call: AuditedCall, audited: AuditedRequest, response: Message | None) -> None:
        changes = tuple(audited.changes or audited.seen)
        if not changes:
            return
        entries = _entries(
            self._asker(call),
            changes,
            _details(call.api.name, audited.message),
            response,
        )
        rows = max(len(changes), _size(audited.message), 0 if response is None else _size(response))
        repeats = ALLOWED.get(call.api.name) is Recorded.DATA
        if rows > (REPEATED_MAX if repeats else SMALL_MAX):
            self._log.record_all(entries, rows)
        elif repeats:
            for entry, (operation, resource) in zip(entries, changes, strict=True):
                self._log.repeat((*_kind(call, operation, resource, allowed=True), entry.error), entry)
        else:
            for entry in entries:
                self._log.record(entry)

    def logged_in(
        self,
        session: Session,
        mechanism: str,
        correlation: int | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        """A client is somebody from now on: the session's principal.

        `details` say by what, where a gateway has logged in for it.
        """
        user = session.principal.name
        entry = entry_of(
            session,
            self._log.now_ms,
            TLS_API if mechanism == TLS_API else LOGIN_API,
            LOGIN,
            ("user", user),
            AuditDecision.ALLOWED,
            correlation=correlation,
            mechanism=mechanism,
            details=details,
        )
        who = session.principal_name, session.host, session.listener
        self._log.repeat((True, *who, mechanism, details), entry)

    def login_failed(
        self, session: Session, mechanism: str, user: str, reason: str, correlation: int
    ) -> None:
        """A client wanted to be somebody, as far as it said who."""
        entry = entry_of(
            session,
            self._log.now_ms,
            LOGIN_API,
            LOGIN,
            ("user", user) if user else None,
            AuditDecision.REFUSED,
            error=reason,
            correlation=correlation,
            mechanism=mechanism,
        )
        kind = (False, entry.resource, session.host, session.listener, mechanism, entry.error)
        self._log.repeat(kind, entry)


def _kind(
    call: AuditedCall, operation: AclOperation, resource: Resource, *, allowed: bool
) -> tuple[object, ...]:
    """Who does what to which resource from where."""
    session = call.session
    return (
        *(allowed, session.principal_name, session.host, session.listener, call.api.name),
        *(operation, resource.kind, name_key(resource.name)),
    )


def _recorded(api: str, message: Any) -> Recorded:
    if api == "OffsetCommit" and not message.member_id and message.generation_id_or_member_epoch < 0:
        # Nobody in the group: an operator who moves it, or a consumer without one.
        return Recorded.ALWAYS
    if api == "LeaveGroup" and _removes_members(message):
        return Recorded.ALWAYS
    return ALLOWED.get(api, Recorded.ALWAYS)


def _removes_members(message: Any) -> bool:
    """Whether a LeaveGroup is that of an operator: a member leaves alone, and by its id."""
    return len(message.members) > 1 or any(
        not member.member_id or (member.reason or "").startswith(REMOVED) for member in message.members
    )


def _error_name(code: int) -> str | None:
    if not code:
        return None
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _size(message: Message) -> int:
    """How many entries the arrays of a message have: twice that at most."""
    limit = SMALL_MAX
    while exceeds_entries(message, limit):
        limit *= 2
    return limit


def _entries(
    asker: _Asker,
    changes: Sequence[Change],
    details: Iterator[_Detail],
    response: Message | None,
) -> Iterator[AuditEntry]:
    """A line for each change with what was asked for there, and further ones where that is much.

    May run in a thread.
    """
    codes, worst = ({}, 0) if response is None else _codes(response)
    names = {resource.name for _, resource in changes}
    words: dict[str, list[str]] = {}
    for detail in details:
        words.setdefault(detail.resource if detail.resource in names else "", []).extend(_cut(detail.words))
    # What is about none of them: it stands in every line if it is as short as they are few.
    shared = words.pop("", [])
    is_short = len(shared) <= DETAILS_MAX and len(changes) <= DETAILS_MAX
    for number, change in enumerate(changes):
        name = change[1].name
        found = shared if is_short or not number else []
        found = found + words.pop(name, [])
        error = UNANSWERED if response is None else _error_name(codes.get(name, worst))
        for begin in range(0, max(len(found), 1), DETAILS_MAX):
            part = tuple(found[begin : begin + DETAILS_MAX])
            yield asker.entry(change, AuditDecision.ALLOWED, error, part)


def _cut(words: str) -> Iterator[str]:
    """Words in pieces that are not cut off."""
    for begin in range(0, len(words), NAME_CHARS_MAX):
        yield words[begin : begin + NAME_CHARS_MAX]


def _codes(response: Message) -> tuple[dict[str, int], int]:
    """The error of each name in a response, and the first error in it; 0 is none."""
    codes: dict[str, int] = {}
    worst = 0
    for name, code in _rows(response, ""):
        worst = worst or code
        if not codes.get(name):
            codes[name] = code
    return codes, worst


def _rows(part: Any, name: str) -> Iterator[tuple[str, int]]:
    """Every error code in a part of a response, with the name that it belongs to."""
    for field in _NAMES:
        found = getattr(part, field, None)
        if isinstance(found, str):
            name = found
            break
    code = getattr(part, "error_code", None)
    if code is not None:
        yield name, int(code)
    for field in part.__struct_fields__:
        rows = getattr(part, field)
        if isinstance(rows, tuple):
            for row in rows:
                if hasattr(row, "__struct_fields__"):
                    yield from _rows(row, name)


def _details(api: str, message: Any) -> Iterator[_Detail]:
    """What was asked for, in words; of settings their names alone, since values may be secrets."""
    describe = _DETAILS.get(api)
    return iter(()) if describe is None else describe(message)


def _portions(numbers: Sequence[int]) -> Iterator[str]:
    """Numbers in words, some at a time."""
    for begin in range(0, len(numbers), DETAILS_MAX):
        yield ", ".join(map(str, numbers[begin : begin + DETAILS_MAX]))


def _word(kind: type[enum.IntEnum], number: int) -> str:
    try:
        return kind(number).name.lower()
    except ValueError:
        return "any" if number == 1 else str(number)


def _acl(
    kind: int, pattern: int, name: str | None, rule: Any, principal: str | None, host: str | None
) -> str:
    return (
        f"{_word(AclPermission, rule.permission_type)} {principal or 'anybody'} from {host or 'anywhere'} "
        f"{_word(AclOperation, rule.operation)} on {_word(PatternType, pattern)} "
        f"{_word(ResourceType, kind)} {name if name is not None else 'any'}"
    )


def _created_acls(message: Any) -> Iterator[_Detail]:
    for row in message.creations:
        words = _acl(
            row.resource_type, row.resource_pattern_type, row.resource_name, row, row.principal, row.host
        )
        yield _Detail(words)


def _deleted_acls(message: Any) -> Iterator[_Detail]:
    for row in message.filters:
        words = _acl(
            row.resource_type_filter,
            row.pattern_type_filter,
            row.resource_name_filter,
            row,
            row.principal_filter,
            row.host_filter,
        )
        yield _Detail(words)


def _users(message: Any) -> Iterator[_Detail]:
    for row in message.upsertions:
        yield _Detail(f"set {_word(ScramMechanism, row.mechanism)} of {row.name}")
    for row in message.deletions:
        yield _Detail(f"delete {_word(ScramMechanism, row.mechanism)} of {row.name}")


def _quotas(message: Any) -> Iterator[_Detail]:
    for row in message.entries:
        entity = ", ".join(f"{part.entity_type} {part.entity_name or '(default)'}" for part in row.entity)
        for change in row.ops:
            yield _Detail(f"{entity}: {change.key} {'removed' if change.remove else change.value}")


def _configs(message: Any) -> Iterator[_Detail]:
    for row in message.resources:
        for config in row.configs:
            words = f"{_word(ConfigResourceType, row.resource_type)} {row.resource_name}: {config.name}"
            yield _Detail(words, row.resource_name)


def _partitions(message: Any) -> Iterator[_Detail]:
    for row in message.topics or ():
        for indexes in _portions([part.partition_index for part in row.partitions]):
            yield _Detail(f"{row.name}: {indexes}")


def _elections(message: Any) -> Iterator[_Detail]:
    if message.topic_partitions is None:
        yield _Detail("every partition")
    for row in message.topic_partitions or ():
        for indexes in _portions(row.partitions):
            yield _Detail(f"{row.topic}: {indexes}")


def _features(message: Any) -> Iterator[_Detail]:
    for row in message.feature_updates:
        yield _Detail(f"{row.feature} {row.max_version_level}")


def _markers(message: Any) -> Iterator[_Detail]:
    for row in message.markers:
        yield _Detail(f"{'commit' if row.transaction_result else 'abort'} producer {row.producer_id}")


def _removed_members(message: Any) -> Iterator[_Detail]:
    for row in message.members:
        named = row.member_id if row.group_instance_id is None else f"instance {row.group_instance_id}"
        yield _Detail(f"remove {named}")


def _new_api_key(message: Any) -> Iterator[_Detail]:
    yield _Detail(f"{message.id} of {message.user}")
    if message.scope:
        yield _Detail(f"for {', '.join(_word(AclOperation, each) for each in message.scope)} alone")
    if message.expires_ms != NO_EXPIRY:
        yield _Detail(f"until {message.expires_ms}")


def _rotation(message: Any) -> Iterator[_Detail]:
    yield _Detail(f"node {message.node_id}{', with its old segments' if message.reseal else ''}")


def _cuts(message: Any) -> Iterator[_Detail]:
    for row in message.topics:
        for part in row.partitions:
            below = "all" if part.offset == ALL_RECORDS else f"all below {part.offset}"
            yield _Detail(f"{row.name}/{part.partition_index}: {below}", row.name)


def _queue_change(message: Any) -> Iterator[_Detail]:
    words = {PAUSE: "pause", RESUME: "resume", RESET: f"reset to {message.offset}", FORGET: "forget"}
    change = f"{words.get(message.action, message.action)} {message.topic} of {message.group_id}"
    for places in _portions(message.partitions) if message.partitions else ("every partition",):
        yield _Detail(f"{change}: {places}")


def _one(field: str) -> Callable[[Any], Iterator[_Detail]]:
    def describe(message: Any) -> Iterator[_Detail]:
        yield _Detail(f"{field.replace('_', ' ')} {getattr(message, field)}")

    return describe


_DETAILS: dict[str, Callable[[Any], Iterator[_Detail]]] = {
    "CreateAcls": _created_acls,
    "DeleteAcls": _deleted_acls,
    "AlterUserScramCredentials": _users,
    "AlterClientQuotas": _quotas,
    "AlterConfigs": _configs,
    "IncrementalAlterConfigs": _configs,
    "AlterPartitionReassignments": _partitions,
    "ElectLeaders": _elections,
    "UpdateFeatures": _features,
    "WriteTxnMarkers": _markers,
    "LeaveGroup": _removed_members,
    "CreateApiKey": _new_api_key,
    "DeleteApiKey": _one("id"),
    "RotateMasterKey": _rotation,
    "DeleteRecords": _cuts,
    "QueueAlter": _queue_change,
    "UnregisterBroker": _one("broker_id"),
    "AddRaftVoter": _one("voter_id"),
    "RemoveRaftVoter": _one("voter_id"),
}
