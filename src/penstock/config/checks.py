"""Settings that are each allowed, but not together."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.config.address import Address
from penstock.config.listener import MAIN_NAME


def contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    """Everything that does not fit together, naming both sides and where they came from."""

    def named(key: str) -> str:
        return f"{key} ({origins[key]})"

    session, heartbeat = "groups.session_timeout_ms", "groups.heartbeat_interval_ms"
    if values[heartbeat] >= values[session]:
        yield f"{named(heartbeat)} = {values[heartbeat]} must be below {named(session)} = {values[session]}"
    if values["topics.retention_hours"] == 0:
        yield f"{named('topics.retention_hours')} must not be 0: -1 keeps records for ever"
    yield from _session_bounds(values, named)
    yield from _repeated("node.roles", values["node.roles"], origins)
    yield from _repeated("cluster.voters", [voter.node_id for voter in values["cluster.voters"]], origins)
    names = [listener.name.lower() for listener in values["listen.listeners"]]
    yield from _repeated("listen.listeners", names, origins)
    if MAIN_NAME.lower() in names:
        yield f"{named('listen.listeners')} names {MAIN_NAME}, which is the listener of listen.kafka"
    yield from _shared_ports(values, named)


def _session_bounds(values: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[str]:
    lowest, highest = "groups.session_timeout_ms_min", "groups.session_timeout_ms_max"
    if values[lowest] > values[highest]:
        yield f"{named(lowest)} = {values[lowest]} must not be above {named(highest)} = {values[highest]}"


def _repeated(key: str, items: Any, origins: Mapping[str, str]) -> Iterator[str]:
    for index, item in enumerate(items):
        if item in items[:index]:
            yield f"{key} ({origins[key]}) names {item} twice"


def _shared_ports(values: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[str]:
    taken: dict[int, tuple[str, Address]] = {}
    for key, address in _binds(values):
        if address.port == 0:
            continue
        other, held = taken.setdefault(address.port, (key, address))
        if held is address:
            continue
        if held.host == address.host or held.is_every_interface or address.is_every_interface:
            yield f"{named(other)} and {named(key)} both listen on port {address.port}"


def _binds(values: Mapping[str, Any]) -> Iterator[tuple[str, Address]]:
    for key, value in values.items():
        if key == "listen.listeners":
            yield from ((key, listener.bind) for listener in value)
        elif isinstance(value, Address) and key.startswith("listen.") and key != "listen.advertised":
            yield key, value
