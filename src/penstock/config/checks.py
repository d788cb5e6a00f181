"""Settings that are each allowed, but not together."""

from collections.abc import Iterator, Mapping
from typing import Any


def contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    """Everything that does not fit together, naming both sides and where they came from."""

    def named(key: str) -> str:
        return f"{key} ({origins[key]})"

    session, heartbeat = "groups.session_timeout_ms", "groups.heartbeat_interval_ms"
    if values[heartbeat] >= values[session]:
        yield f"{named(heartbeat)} = {values[heartbeat]} must be below {named(session)} = {values[session]}"
    if values["topics.retention_hours"] == 0:
        yield f"{named('topics.retention_hours')} must not be 0: -1 keeps records for ever"
    yield from _repeated("node.roles", values["node.roles"], origins)
    yield from _repeated("cluster.voters", [voter.node_id for voter in values["cluster.voters"]], origins)
    yield from _shared_ports(values, named)


def _repeated(key: str, items: Any, origins: Mapping[str, str]) -> Iterator[str]:
    for index, item in enumerate(items):
        if item in items[:index]:
            yield f"{key} ({origins[key]}) names {item} twice"


def _shared_ports(values: Mapping[str, Any], named: Any) -> Iterator[str]:
    taken: dict[int, str] = {}
    for key, address in values.items():
        if not key.startswith("listen.") or address.port == 0:
            continue
        other = taken.setdefault(address.port, key)
        if other == key:
            continue
        hosts = values[other], address
        if hosts[0].host == hosts[1].host or any(host.is_every_interface for host in hosts):
            yield f"{named(other)} and {named(key)} both listen on port {address.port}"
