"""`broker()`, and what it yields."""

import itertools
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from penstock.core.model import PenstockError
from penstock.testing.nodes import NodeEndpoints, NodeHost
from penstock.testing.scratch import scratch_directory

# Where a test wants something else than a production node does. `settings` of `broker` come after these.
TEST_SETTINGS: Mapping[str, str] = {
    # /metrics is served at listen.http as well.
    "metrics.enabled": "false",
    "logging.level": "warning",
    # A process more, and most tests want none: `broker(http=True)`.
    "rest.enabled": "false",
    "listen.grpc": "127.0.0.1:0",
    # Nobody reads these data after a crash of the machine.
    "storage.fsync.mode": "none",
    # The first member of a group need not wait for others.
    "groups.initial_rebalance_delay_ms": "0",
    # As in Kafka: what a test writes in order, it reads in order.
    "topics.partitions": "1",
    "groups.offsets_partitions": "1",
}
NODES_MAX = 9
DEFAULT = -1


class TopicNotCreated(PenstockError):
    """A broker of a test did not create a topic."""


class BrokerNode:
    """One node of a broker under test."""

    def __init__(self, host: NodeHost, settings: Mapping[str, str]) -> None:
        self._host = host
        self._settings = dict(settings)
        self._endpoints: NodeEndpoints | None = None

    @property
    def address(self) -> str:
        """Where its Kafka clients connect, as `host:port`."""
        assert self._endpoints is not None
        return self._endpoints.kafka

    @property
    def http_url(self) -> str:
        assert self._endpoints is not None
        return f"http://{self._endpoints.http}"

    def launch(self) -> None:
        """Start it without waiting for it."""
        self._host.launch(self._settings)

    def await_ready(self) -> None:
        """Wait until it serves clients."""
        self._endpoints = found = self._host.await_ready()
        # Chosen by the node if a test has set port 0.
        self._settings |= {"listen.kafka": found.kafka, "listen.http": found.http}

    def start(self) -> None:
        """Start it again, at the same addresses, with the data that it has."""
        self.launch()
        self.await_ready()

    def stop(self) -> None:
        """Stop it in order."""
        self._host.stop()

    def kill(self) -> None:
        """End it as kill -9 does; only for a node in a process of its own."""
        self._host.kill()

    def discard(self) -> None:
        """Begin to end it, with no care for its data."""
        self._host.discard()

    def await_end(self) -> None:
        self._host.await_end()


class Broker:
    """A broker that is ready: one node, or a cluster of several."""

    def __init__(self, nodes: Sequence[BrokerNode]) -> None:
        self.nodes = tuple(nodes)
        self._numbers = itertools.count(1)

    @property
    def bootstrap_servers(self) -> str:
        """For `bootstrap.servers` of any Kafka client."""
        return ",".join(node.address for node in self.nodes)

    @property
    def http_url(self) -> str:
        """Where the first node serves HTTP, without a slash at the end."""
        return self.nodes[0].http_url

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name; without `name` it gets one that no other has."""
        # Not before somebody wants a topic: most clients create theirs by writing to it.
        from penstock.client import Endpoint
        from penstock.client.connection import connect
        from penstock.core.protocol.messages.create_topics import (
            CreateTopicsRequest,
            CreateTopicsRequestConfig,
            CreateTopicsRequestTopic,
        )

        chosen = name or f"topic-{next(self._numbers)}"
        topic = CreateTopicsRequestTopic(
            name=chosen,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(
                CreateTopicsRequestConfig(name=key, value=value) for key, value in (configs or {}).items()
            ),
        )
        connection = connect(Endpoint(self.bootstrap_servers))
        try:
            answer = connection.ask(CreateTopicsRequest(topics=(topic,)))
        finally:
            connection.close()
        (created,) = answer.topics
        if created.error_code:
            raise TopicNotCreated(f"{chosen}: {created.error_message or created.error_code}")
        return chosen


@contextmanager
def broker(
    *,
    nodes: int = 1,
    in_process: bool | None = None,
    http: bool = False,
    settings: Mapping[str, object] | None = None,
    directory: str | None = None,
) -> Iterator[Broker]:
    """Start an empty broker; at the end stop it and remove what it wrote.

    `nodes` that are more than one form a cluster. Each runs on a thread of this process, or in one of its
    own (`in_process=False`, the default for a cluster). With `http` each serves REST, WebSocket and gRPC,
    without it health and metrics only. `settings` are those of penstock.yaml, as
    `{"topics.partitions": 6}`. `directory` is where the data lie, instead of the usual place for
    temporary files.

    A node that failed while the test ran is an error at the end, unless the test has raised another.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"nodes={nodes}: a broker for tests has 1 to {NODES_MAX}")
    embedded = nodes == 1 if in_process is None else in_process
    given = {key: _text(value) for key, value in {"rest.enabled": http, **(settings or {})}.items()}
    with ExitStack() as stack:
        root = stack.enter_context(scratch_directory(directory))
        made = [
            _node(number, embedded, root, {**TEST_SETTINGS, **addresses, **given})
            for number, addresses in enumerate(_addresses(nodes, stack), start=1)
        ]
        try:
            for node in made:
                node.launch()
            for node in made:
                node.await_ready()
            yield Broker(made)
        except BaseException:
            with suppress(PenstockError):
                _discard(made)
            raise
        _discard(made)


def _discard(nodes: Sequence[BrokerNode]) -> None:
    """End all at the same time; raises what was wrong with the first that failed."""
    for node in nodes:
        node.discard()
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.await_end)


def _addresses(count: int, stack: ExitStack) -> list[dict[str, str]]:
    """Where the nodes listen, and find one another.

    The ports stay reserved until the end: a client that knocks at a node that is down could otherwise be
    given that very port for its own end of the connection, and the node could not come back.
    """
    nodes = [{"listen.kafka": _reserved(stack), "listen.http": _reserved(stack)} for _ in range(count)]
    if count > 1:
        voters = ",".join(f"{number}@{_reserved(stack)}" for number in range(1, count + 1))
        nodes = [{**node, "cluster.voters": voters} for node in nodes]
    return nodes


def _reserved(stack: ExitStack) -> str:
    """A free address. Bound and not listening, the socket lets a node listen there, and nobody else."""
    holder = stack.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{holder.getsockname()[1]}"


def _node(number: int, embedded: bool, root: str, settings: Mapping[str, str]) -> BrokerNode:
    data_dir = os.path.join(root, f"node-{number}")
    whole = {**settings, "node.id": str(number), "node.data_dir": data_dir}
    if embedded:
        # The broker itself is imported when the first one starts.
        from penstock.testing.embedded import EmbeddedNode

        return BrokerNode(EmbeddedNode(), whole)
    from penstock.testing.child import ChildNode

    return BrokerNode(ChildNode(Path(root, f"node-{number}.log")), whole)


def _text(value: object) -> str:
    """A value as penstock.yaml spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(one) for one in value)
    return str(value)
