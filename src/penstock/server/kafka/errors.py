"""The table from `ErrorKind` to Kafka's error codes, and responses that are nothing but an error."""

from typing import Any

from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import Api, ErrorCode, Message
from penstock.core.protocol.schema import REQUIRED, Part, PartOf

MESSAGE_CHARS_MAX = 1_000
CODES = {
    ErrorKind.TOPIC_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorKind.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorKind.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorKind.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorKind.INVALID_TOPIC_NAME: ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorKind.INVALID_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
    ErrorKind.INVALID_REPLICATION_FACTOR: ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorKind.INVALID_ASSIGNMENT: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorKind.INVALID_CONFIG: ErrorCode.INVALID_CONFIG,
    ErrorKind.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    ErrorKind.NO_REASSIGNMENT: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorKind.TOPIC_DELETION_DISABLED: ErrorCode.TOPIC_DELETION_DISABLED,
    ErrorKind.UNKNOWN_BROKER: ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorKind.STALE_BROKER_EPOCH: ErrorCode.STALE_BROKER_EPOCH,
    ErrorKind.INVALID_FEATURE_LEVEL: ErrorCode.INVALID_UPDATE_VERSION,
    ErrorKind.INCONSISTENT_CLUSTER: ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorKind.DUPLICATE_BROKER: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorKind.NOT_CONTROLLER: ErrorCode.NOT_CONTROLLER,
    ErrorKind.DUPLICATE_VOTER: ErrorCode.DUPLICATE_VOTER,
    ErrorKind.VOTER_NOT_FOUND: ErrorCode.VOTER_NOT_FOUND,
    # Nothing was appended: the client may retry, with the same node or the next leader.
    ErrorKind.QUORUM_BUSY: ErrorCode.REQUEST_TIMED_OUT,
    ErrorKind.FENCED_LEADER_EPOCH: ErrorCode.FENCED_LEADER_EPOCH,
    ErrorKind.UNKNOWN_LEADER_EPOCH: ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorKind.STALE_PARTITION_EPOCH: ErrorCode.INVALID_UPDATE_VERSION,
    ErrorKind.INELIGIBLE_REPLICA: ErrorCode.INELIGIBLE_REPLICA,
    ErrorKind.ELECTION_NOT_NEEDED: ErrorCode.ELECTION_NOT_NEEDED,
    ErrorKind.PREFERRED_LEADER_NOT_AVAILABLE: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorKind.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorKind.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorKind.NOT_ENOUGH_REPLICAS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorKind.CORRUPT_BATCH: ErrorCode.CORRUPT_MESSAGE,
    ErrorKind.UNSUPPORTED_FORMAT: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorKind.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    ErrorKind.BATCH_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    ErrorKind.INVALID_TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    ErrorKind.OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorKind.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorKind.PRODUCER_FORGOTTEN: ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorKind.STALE_COORDINATOR: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorKind.INVALID_TRANSACTION: ErrorCode.INVALID_TXN_STATE,
    ErrorKind.TRANSACTION_ABORTABLE: ErrorCode.TRANSACTION_ABORTABLE,
    ErrorKind.CONCURRENT_TRANSACTIONS: ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorKind.UNKNOWN_PRODUCER: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorKind.UNKNOWN_TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorKind.INVALID_TRANSACTION_TIMEOUT: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorKind.NOT_DELETABLE: ErrorCode.POLICY_VIOLATION,
    ErrorKind.OFFSET_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorKind.OFFSET_NOT_AVAILABLE: ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorKind.DAMAGED_LOG: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorKind.STORAGE_FAILED: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorKind.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorKind.INVALID_ACL: ErrorCode.INVALID_REQUEST,
    ErrorKind.UNKNOWN_CREDENTIAL: ErrorCode.RESOURCE_NOT_FOUND,
    ErrorKind.INVALID_CREDENTIAL: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ErrorKind.UNKNOWN_API_KEY: ErrorCode.RESOURCE_NOT_FOUND,
    ErrorKind.ACCESS_LIMIT: ErrorCode.POLICY_VIOLATION,
    ErrorKind.NOT_AUTHORIZED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorKind.TRANSACTIONAL_ID_NOT_AUTHORIZED: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorKind.THROTTLED: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorKind.UNKNOWN_SUBSCRIPTION: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorKind.TELEMETRY_TOO_LARGE: ErrorCode.TELEMETRY_TOO_LARGE,
    ErrorKind.UNSUPPORTED_COMPRESSION: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorKind.UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorKind.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorKind.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    ErrorKind.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    ErrorKind.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorKind.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorKind.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    ErrorKind.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorKind.GROUP_NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    ErrorKind.GROUP_SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorKind.INVALID_GROUP: ErrorCode.INVALID_GROUP_ID,
    ErrorKind.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorKind.TOPIC_CREATION_LIMITED: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorKind.TOO_MANY_OFFSETS: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorKind.OFFSET_METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorKind.OFFSETS_UNSTABLE: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorKind.STALE_MEMBER_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    ErrorKind.FENCED_MEMBER_EPOCH: ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorKind.NO_MEMBER_EPOCH: ErrorCode.UNSUPPORTED_VERSION,
    ErrorKind.UNRELEASED_INSTANCE: ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorKind.UNSUPPORTED_ASSIGNOR: ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorKind.INVALID_REGULAR_EXPRESSION: ErrorCode.INVALID_REGULAR_EXPRESSION,
    ErrorKind.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
    ErrorKind.COORDINATOR_LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorKind.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.INVALID_RECORD_STATE: ErrorCode.INVALID_RECORD_STATE,
}


def code_of(error: ApiError) -> ErrorCode:
    return CODES[error.kind]


def transaction_code(reply: object, *, knows_fenced: bool) -> ErrorCode:
    """The code of a transaction coordinator's reply; NONE if it is no error.

    Clients that are old enough know one code for what is stale, whoever says so (KIP-588).
    """
    if not isinstance(reply, ApiError):
        return ErrorCode.NONE
    if reply.kind is ErrorKind.PRODUCER_FENCED and knows_fenced:
        return ErrorCode.PRODUCER_FENCED
    return CODES[reply.kind]


def message_of(error: ApiError) -> str:
    """A sentence for the person who reads the client's error.

    It may quote what the client sent, and old versions of messages have room for 32 KB only.
    """
    return str(error)[:MESSAGE_CHARS_MAX]


def error_response(api: Api, version: int, code: ErrorCode, message: str) -> Message | None:
    """A response that has an error and no rows; None if in this version only rows have errors."""
    known = {field.name for field in api.response.__schema__.fields if field.is_in(version)}
    if "error_code" not in known:
        return None
    errors: dict[str, object] = {"error_code": code}
    if "error_message" in known:
        errors["error_message"] = message[:MESSAGE_CHARS_MAX]
    response: Message = _blank(api.response, errors)
    return response


def _blank(kind: type[Part], values: dict[str, object]) -> Any:
    """A part with these values, and Kafka's defaults for all that must be given."""
    for field in kind.__schema__.fields:
        if field.name not in values and field.history.default is REQUIRED:
            inner = field.type.part if isinstance(field.type, PartOf) else None
            values[field.name] = field.default if inner is None else _blank(inner, {})
    return kind(**values)
