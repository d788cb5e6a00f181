"""Who leads a partition, and a connection to whoever it is."""

from dataclasses import dataclass
from uuid import UUID

from penstock.client import Disconnected, Endpoint
from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.pipeline.reading.options import ReaderOptions


class Unavailable(Exception):
    """A partition cannot be asked about now; `code` says why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Leader:
    """Where a partition is served, and which topic of that name it belongs to."""

    connection: BrokerConnection
    topic_id: UUID


class Cluster:
    """Knows brokers by what the last answer to Metadata said, and where to ask for a new one."""

    def __init__(self, bootstrap: str, options: ReaderOptions) -> None:
        self._bootstrap = Endpoint(bootstrap).addresses()
        self._options = options
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}

    def close(self) -> None:
        """Hang up everywhere, and forget who leads what."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def leader(self, topic: str, partition: int) -> Leader:
        """The leader of a partition; Unavailable or Disconnected where there is none to be found."""
        found = self._leaders.get((topic, partition))
        if found is not None and found.connection.is_waiting:
            # Somebody stopped reading half way; the answer is of no use to the next question.
            self.close()
            found = None
        if found is None:
            found = self._leaders[topic, partition] = self._find(topic, partition)
        return found

    def _find(self, topic: str, partition: int) -> Leader:
        answer = self._metadata(topic)
        (about,) = answer.topics
        if about.error_code != ErrorCode.NONE:
            raise Unavailable(about.error_code)
        for one in about.partitions:
            if one.partition_index == partition:
                break
        else:
            raise Unavailable(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        address = addresses.get(one.leader_id)
        if address is None:
            raise Unavailable(one.error_code or ErrorCode.LEADER_NOT_AVAILABLE)
        return Leader(self._connect(address), about.topic_id)

    def _metadata(self, topic: str) -> MetadataResponse:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        failure: Disconnected | None = None
        for address in (*self._connections, *self._bootstrap):
            try:
                answer: MetadataResponse = self._connect(address).ask(request)
            except Disconnected as error:
                failure = error
                self._drop(address)
            else:
                return answer
        raise failure or Disconnected("no bootstrap address was given")

    def _connect(self, address: BrokerAddress) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = BrokerConnection(
                address,
                client_id=self._options.client_id,
                request_seconds=self._options.request_ms / 1000,
            )
            self._connections[address] = connection
        return connection

    def _drop(self, address: BrokerAddress) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
