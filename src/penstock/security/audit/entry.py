"""One line of the audit log.

Every line has the same fields, in one order; what does not apply is null. Names that clients choose are cut
at `NAME_CHARS_MAX`, and everything beyond printable ASCII is escaped: a line is one line on any terminal,
whatever a client calls itself.
"""

import enum
import json
from datetime import UTC, datetime
from typing import NamedTuple

from penstock.security.sessions import Session

NAME_CHARS_MAX = 256
DETAILS_MAX = 20


class AuditDecision(enum.Enum):
    """What became of it."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    # Not a decision: so many entries are missing here.
    DROPPED = "dropped"


class AuditEntry(NamedTuple):
    """What somebody did, or was not allowed to do."""

    time_ms: int
    principal: str
    host: str
    listener: str
    client_id: str
    api: str
    operation: str
    resource_type: str | None
    resource: str | None
    decision: AuditDecision
    # Kafka's name of the error, or why a login failed.
    error: str | None = None
    correlation: int | None = None
    mechanism: str | None = None
    # What an administrator asked for, without values that may be secret.
    details: tuple[str, ...] = ()
    # How many of the kind the line stands for, and when the last of them was.
    times: int = 1
    last_ms: int | None = None


def entry_of(  # noqa: PLR0913 - the fields of a line
    session: Session,
    time_ms: int,
    api: str,
    operation: str,
    resource: tuple[str, str] | None,
    decision: AuditDecision,
    *,
    error: str | None = None,
    correlation: int | None = None,
    mechanism: str | None = None,
    details: tuple[str, ...] = (),
) -> AuditEntry:
    """An entry about a request of a session; names are cut."""
    kind, name = (None, None) if resource is None else resource
    return AuditEntry(
        time_ms,
        session.principal_name[:NAME_CHARS_MAX],
        session.host[:NAME_CHARS_MAX],
        session.listener,
        session.client_id[:NAME_CHARS_MAX],
        api,
        operation,
        kind,
        None if name is None else name[:NAME_CHARS_MAX],
        decision,
        None if error is None else error[:NAME_CHARS_MAX],
        correlation,
        mechanism,
        tuple(each[:NAME_CHARS_MAX] for each in details[:DETAILS_MAX]),
    )


def entry_line(entry: AuditEntry, node_id: int) -> bytes:
    """The entry as a JSON object and a newline."""
    fields = {
        "time": moment(entry.time_ms),
        "node": node_id,
        "principal": entry.principal,
        "host": entry.host,
        "listener": entry.listener,
        "client_id": entry.client_id,
        "api": entry.api,
        "operation": entry.operation,
        "resource_type": entry.resource_type,
        "resource": entry.resource,
        "decision": entry.decision.value,
        "error": entry.error,
        "correlation": entry.correlation,
        "mechanism": entry.mechanism,
        "details": list(entry.details),
        "count": entry.times,
        "until": None if entry.last_ms is None else moment(entry.last_ms),
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def moment(time_ms: int) -> str:
    """A time as ISO 8601 has it, in UTC."""
    found = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return found.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
