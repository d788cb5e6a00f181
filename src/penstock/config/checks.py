"""Settings that are each allowed, but not together."""

import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.config.addresses import ListenAddress, VoterAddress
from penstock.config.settings import peer_address

Named = Callable[[str], str]
DEFAULT_SOURCE = "default"
# Each of them is a setting of brokers too, and brokers have more of the kind: they must fit together.
GROUP_TIMES = (
    "groups.heartbeat_interval_ms",
    "groups.heartbeat_interval_ms_min",
    "groups.session_timeout_ms",
    "groups.session_timeout_ms_max",
    "groups.session_timeout_ms_min",
)


def contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    """Everything that does not fit together, naming both sides and where they came from."""

    def named(key: str) -> str:
        return f"{key} ({origins[key]})"

    if values["topics.retention_hours"] == 0:
        yield f"{named('topics.retention_hours')} must not be 0: -1 keeps records for ever"
    if values["node.kafka_settings"] or any(origins[key] != DEFAULT_SOURCE for key in GROUP_TIMES):
        yield from _kafka_settings(values, named)
    body, in_flight = "rest.body_bytes_max", "rest.in_flight_bytes_max"
    if values[in_flight] < values[body]:
        yield f"{named(in_flight)} = {values[in_flight]} must not be below {named(body)} = {values[body]}"
    yield from _broker_session(values, named)
    yield from _repeated("node.roles", values["node.roles"], origins)
    yield from _voters(values, origins, named)
    names = [listener.name.lower() for listener in values["listen.listeners"]]
    yield from _repeated("listen.listeners", names, origins)
    main = values["listen.protocol"]
    if main.lower() in names:
        yield f"{named('listen.listeners')} names {main}, which is the listener of listen.kafka"
    advertised = values["listen.advertised"]
    if advertised != "auto" and advertised.is_every_interface:
        yield f"{named('listen.advertised')} = {advertised} needs a host that clients can reach"
    yield from _shared_ports(values, named)
    yield from _encryption(values, origins, named)


# Key service -> what it needs, and what it may have besides.
_KEY_SERVICES: Mapping[str, tuple[str, frozenset[str]]] = {
    "keyring": ("keyring", frozenset()),
    "environment": ("variable", frozenset()),
    "command": ("command", frozenset()),
    "plugin": ("plugin", frozenset(["plugin_options"])),
}


def _encryption(values: Mapping[str, Any], origins: Mapping[str, str], named: Named) -> Iterator[str]:
    prefix = "security.encryption."
    if not values[f"{prefix}enabled"]:
        return
    service = values[f"{prefix}service"]
    needed, allowed = _KEY_SERVICES[service]
    if not values[prefix + needed]:
        yield f"{named(f'{prefix}service')} = {service} needs {prefix}{needed}"
    for name in ("keyring", "variable", "command", "plugin", "plugin_options"):
        if name != needed and name not in allowed and origins[prefix + name] != DEFAULT_SOURCE:
            yield f"{named(prefix + name)} is not used: {named(f'{prefix}service')} is {service}"
    if any("=" not in option.strip("=") for option in values[f"{prefix}plugin_options"]):
        yield f"{named(f'{prefix}plugin_options')} has an option that is not name=value"
    if service == "keyring" and _is_inside(values[f"{prefix}keyring"], values["node.data_dir"]):
        yield (
            f"{named(f'{prefix}keyring')} is in {named('node.data_dir')}: "
            "whoever has the disk would have the keys, too"
        )


def _is_inside(path: str, directory: str) -> bool:
    above = os.path.abspath(directory)
    return bool(path) and os.path.commonpath([above, os.path.abspath(path)]) == above


def _kafka_settings(values: Mapping[str, Any], named: Named) -> Iterator[str]:
    # Imported where it is used: the tables of Kafka's settings take a while to load.
    from penstock.config.kafka_settings import problems_together, problems_with_kafka_settings

    items = values["node.kafka_settings"]
    problems = [f"{named('node.kafka_settings')}: {one}" for one in problems_with_kafka_settings(items)]
    yield from problems
    if not problems:
        yield from problems_together(items, {key: values[key] for key in GROUP_TIMES}, named)


def _voters(values: Mapping[str, Any], origins: Mapping[str, str], named: Named) -> Iterator[str]:
    voters: tuple[VoterAddress, ...] = values["cluster.voters"]
    yield from _repeated("cluster.voters", [voter.node_id for voter in voters], origins)
    yield from _repeated("cluster.voters", [voter.address for voter in voters], origins)
    for voter in voters:
        if voter.address.port == 0:
            yield f"{named('cluster.voters')} has port 0 in {voter}: the others must know where to connect"
    if voters:
        yield from _own_entry(values, named)
    elif "controller" not in values["node.roles"]:
        yield f"{named('node.roles')} lacks controller: cluster.voters must say who the controllers are"


def _own_entry(values: Mapping[str, Any], named: Named) -> Iterator[str]:
    voters, me = values["cluster.voters"], values["node.id"]
    votes = "controller" in values["node.roles"]
    own = next((voter for voter in voters if voter.node_id == me), None)
    if own is None:
        if votes:
            yield (
                f"{named('node.id')} = {me} is not among {named('cluster.voters')}: add {me}@HOST:PORT "
                "there, or let node.roles be broker alone"
            )
        return
    if not votes:
        yield f"{named('cluster.voters')} has this node as {own}, but {named('node.roles')} lacks controller"
    if not _may_be(values["listen.peer"], own.address):
        yield (
            f"{named('listen.peer')} = {values['listen.peer']} is not what {named('cluster.voters')} "
            f"tells the others: {own}"
        )


def _may_be(bound: Any, told: ListenAddress) -> bool:
    """Whether a client given one address may reach the other; names may stand for any host."""
    if bound == "auto" or told.port == 0:
        return True
    if bound.port != told.port:
        return False
    if bound.is_every_interface or bound.host == told.host:
        return True
    return not (_is_number(bound.host) and _is_number(told.host))


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _broker_session(values: Mapping[str, Any], named: Named) -> Iterator[str]:
    session, heartbeat = "cluster.session_timeout_ms", "cluster.heartbeat_interval_ms"
    if 2 * values[heartbeat] > values[session]:
        yield (
            f"{named(heartbeat)} = {values[heartbeat]} must not be above half of "
            f"{named(session)} = {values[session]}"
        )


def _repeated(key: str, items: Any, origins: Mapping[str, str]) -> Iterator[str]:
    for index, item in enumerate(items):
        if item in items[:index]:
            yield f"{key} ({origins[key]}) names {item} twice"


def _shared_ports(values: Mapping[str, Any], named: Named) -> Iterator[str]:
    taken: dict[int, tuple[str, ListenAddress]] = {}
    for key, address in _binds(values):
        if address.port == 0:
            continue
        other, held = taken.setdefault(address.port, (key, address))
        if held is address:
            continue
        if held.host == address.host or held.is_every_interface or address.is_every_interface:
            yield f"{named(other)} and {named(key)} both listen on port {address.port}"


def _binds(values: Mapping[str, Any]) -> Iterator[tuple[str, ListenAddress]]:
    for key, value in values.items():
        if key == "listen.listeners":
            yield from ((key, listener.bind) for listener in value)
        elif key == "listen.peer":
            peer = peer_address(value, values["node.id"], values["cluster.voters"])
            if peer is not None:
                yield key, peer
        elif isinstance(value, ListenAddress) and key.startswith("listen.") and key != "listen.advertised":
            yield key, value
