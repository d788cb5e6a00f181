"""What each node of a local cluster is told."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.config import SETTINGS, Address, ConfigError, Listener, Loaded, Voter
from penstock.config.address import PORT_MAX
from penstock.config.loading import DEFAULT_SOURCE
from penstock.config.settings import PEER_DEFAULT

BROKERS_MAX = 9
PORT_STEP = 100
LOOPBACK = "127.0.0.1"
# Beside a single node's `./penstock-data`, so that both can be tried in one directory.
DATA_DIR_DEFAULT = "./penstock-cluster"
PEER = "listen.peer"
LISTENERS = "listen.listeners"
# Addresses that nothing listens on so far are passed on, and not asked for.
UNSERVED = ("listen.grpc", "listen.advertised")
# What a local cluster decides by itself.
DECIDED = ("node.id", "cluster.voters", "node.roles")
Doors = dict[str, Address]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: its number, where it keeps its data, and the settings that are its own."""

    number: int
    data_dir: str
    values: Mapping[str, Any]

    @property
    def doors(self) -> Doors:
        """Where it is going to listen, by the setting that says so."""
        found: Doors = {}
        for key, value in self.values.items():
            if key == LISTENERS:
                found |= {f"{LISTENERS} {one.name}": one.bind for one in value}
            elif isinstance(value, Address) and key not in UNSERVED:
                found[key] = value
        return found

    def at(self, doors: Doors) -> "NodePlan":
        """The same node, listening exactly there."""
        values = dict(self.values)
        for key, value in self.values.items():
            if key == LISTENERS:
                values[key] = tuple(one._replace(bind=doors[f"{LISTENERS} {one.name}"]) for one in value)
            elif key in doors:
                values[key] = doors[key]
        return replace(self, values=values)

    def with_voters(self, voters: tuple[Voter, ...]) -> "NodePlan":
        return replace(self, values={**self.values, "cluster.voters": voters})

    def assignments(self) -> Iterator[str]:
        """Its settings as `--set` takes them."""
        yield f"node.id={self.number}"
        yield f"node.data_dir={self.data_dir}"
        for key, value in self.values.items():
            yield f"{key}={SETTINGS[key].show(value)}"


def plan_nodes(loaded: Loaded, count: int) -> list[NodePlan]:
    """The nodes that a configuration stands for; ConfigError says why there can be none."""
    _check(loaded, count)
    data_dir = os.path.abspath(data_dir_of(loaded))
    return [
        NodePlan(number, os.path.join(data_dir, f"node-{number}"), dict(_addresses(loaded, number)))
        for number in range(1, count + 1)
    ]


def data_dir_of(loaded: Loaded) -> str:
    """Where a local cluster keeps the directories of its nodes."""
    if loaded.origins["node.data_dir"] == DEFAULT_SOURCE:
        return DATA_DIR_DEFAULT
    return loaded.config.node.data_dir


def voters_of(plans: list[NodePlan]) -> tuple[Voter, ...]:
    """The founding members, at the addresses that their plans say."""
    found = []
    for plan in plans:
        peer: Address = plan.values[PEER]
        host = LOOPBACK if peer.is_every_interface else peer.host
        found.append(Voter(plan.number, Address(host, peer.port)))
    return tuple(found)


def _addresses(loaded: Loaded, number: int) -> Iterator[tuple[str, Any]]:
    for key, value in loaded.values.items():
        if not key.startswith("listen."):
            continue
        if key == PEER:
            yield key, _shifted(key, PEER_DEFAULT if value == "auto" else value, number)
        elif key == LISTENERS:
            yield key, tuple(_shifted_listener(one, number) for one in value)
        elif key == "listen.metrics" and not loaded.config.metrics.enabled:
            continue
        elif isinstance(value, Address):
            yield key, _shifted(key, value, number)


def _shifted_listener(listener: Listener, number: int) -> Listener:
    advertised = listener.advertised
    if advertised != "auto":
        advertised = _shifted(LISTENERS, advertised, number)
    return listener._replace(bind=_shifted(LISTENERS, listener.bind, number), advertised=advertised)


def _shifted(key: str, address: Address, number: int) -> Address:
    if address.port == 0:
        return address
    port = address.port + PORT_STEP * (number - 1)
    if port > PORT_MAX:
        raise ConfigError([f"{key} = {address} is too high: node {number} would need port {port}"])
    return Address(address.host, port)


def _check(loaded: Loaded, count: int) -> None:
    problems = [
        f"{key} ({loaded.origins[key]}) and --brokers do not go together: a local cluster numbers its "
        "nodes from 1, and each is broker and controller"
        for key in DECIDED
        if loaded.values[key] != SETTINGS[key].default
    ]
    data_dir = data_dir_of(loaded)
    if os.path.isdir(os.path.join(data_dir, "meta")):
        problems.append(f"{data_dir} is the data directory of a single node: choose another with --data-dir")
    # A majority of those that founded the cluster must be started, or none of them can do anything.
    left_out = [number for number in range(count + 1, BROKERS_MAX + 1) if _exists(data_dir, number)]
    if left_out:
        problems.append(
            f"{data_dir} holds data up to node {left_out[-1]}: start it with --brokers {left_out[-1]}, "
            "or choose another directory with --data-dir"
        )
    if problems:
        raise ConfigError(problems)


def _exists(data_dir: str, number: int) -> bool:
    return os.path.isdir(os.path.join(data_dir, f"node-{number}"))
