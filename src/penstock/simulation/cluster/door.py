"""What a node does with its clients' requests: the Kafka door without its bytes.

Every request is answered once, at once or later. What the handlers of the Kafka gateway do
around the services is done here too, and nothing else. What a leader says of its partition
goes to the checkers at the moment it is said.
"""

import enum
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, assert_never

from penstock.core.groups import Join
from penstock.core.metadata import MetadataImage, ResourceKind
from penstock.core.model import Refused, Why
from penstock.gateways.kafka.backend import Backend
from penstock.services.partitions import Partition
from penstock.services.records import Fetched, FetchLimits, Moment, Placed, Position, Wanted
from penstock.simulation.cluster.journal import Journal, Place

NOT_HERE = Refused(Why.NOT_LEADER)
UNKNOWN = Refused(Why.UNKNOWN_TOPIC)
LEADER_ACKS, ALL_ACKS = 1, -1
TIMEOUT_MS = 1_000
FETCH_BYTES = 1 << 16
SETTING = "max.message.bytes"

Answer: TypeAlias = Callable[[Any], None]
Replies: TypeAlias = Callable[[list[Any]], None]
Act: TypeAlias = Callable[[Backend, Replies], None]


class View(NamedTuple):
    """The metadata that a client was given, and how new it is."""

    version: int
    image: MetadataImage


class What(enum.Enum):
    """What of a topic clients change."""

    EXISTS = "exists"
    PARTITIONS = "partitions"
    SETTING = "setting"


class Register(NamedTuple):
    """One thing that clients change and look at."""

    kind: What
    topic: str

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.topic}"


class Changed(NamedTuple):
    """What became of a change of metadata, and how new the image was by then."""

    reply: object
    version: int


class Produced(NamedTuple):
    """A batch that was acknowledged."""

    first_offset: int


class Polled(NamedTuple):
    """What a consumer was given: record batches as they stand in the log."""

    content: bytes


class Door:
    """Where clients of one life of a node come in; `journal` hears what leaders say."""

    def __init__(self, backend: Backend, journal: Journal, life: str) -> None:
        self.backend = backend
        self._journal = journal
        self._life = life
        self._shown = -1

    def metadata(self, answer: Answer) -> None:
        controller = self.backend.controller
        view = View(controller.committed, controller.image)
        if view.version > self._shown:
            self._shown = view.version
            image = view.image
            content = (image.topics, image.brokers, image.configs, image.features)
            self._journal.metadata.showed(self._life, view.version, content, partial(value_in, image))
        answer(view)

    def produce(self, answer: Answer, place: Place, batch: bytes, acks: int) -> None:
        partition = self._find(place)
        if isinstance(partition, Refused):
            answer(partition)
            return
        on_all = acks == ALL_ACKS
        placed = self.backend.producing.append(partition, memoryview(bytearray(batch)), on_all=on_all)
        if isinstance(placed, Refused):
            answer(placed)
            return
        assert isinstance(placed, Placed), "only large batches take longer"
        produced = Produced(placed.first_offset)

        def acknowledged(refused: Refused | None) -> None:
            if refused is not None:
                answer(refused)
                return
            self._show(partition)
            if on_all:
                self._journal.watermarks.acknowledged(key_of(partition), placed.end)
            answer(produced)

        if on_all:
            is_safe = partition.when_acknowledged(placed.end, acknowledged, TIMEOUT_MS)
        else:
            is_safe = partition.when_synced(placed.end, acknowledged)
        if is_safe:
            acknowledged(None)

    def fetch(self, answer: Answer, place: Place, offset: int, leader_epoch: int, wait_ms: int) -> None:
        partition = self._find(place)
        if isinstance(partition, Refused):
            answer(partition)
            return

        def found(parts: list[Fetched]) -> None:
            part = parts[0]
            if part.refused is not None:
                answer(part.refused)
                return
            self._show(partition)
            answer(Polled(b"" if part.records is None else part.records.to_bytes()))

        wanted = Wanted(partition, offset, FETCH_BYTES, leader_epoch)
        self.backend.fetching.fetch([wanted], FetchLimits(1, FETCH_BYTES, wait_ms), found)

    def end(self, answer: Answer, place: Place, leader_epoch: int) -> None:
        """Where the log ends for consumers (ListOffsets, latest)."""
        partition = self._find(place)
        if isinstance(partition, Refused):
            answer(partition)
            return
        found = self.backend.lookups.find(
            partition, Moment.LATEST, read_committed=False, leader_epoch=leader_epoch
        )
        if isinstance(found, Position):
            node = self.backend.node.node_id
            self._journal.watermarks.told_end(key_of(partition), partition.leader_epoch, node, found.offset)
        answer(found)

    def group(self, answer: Answer, kind: type, fields: Mapping[str, Any]) -> None:
        """A command of the group protocol."""
        if kind is Join:
            fields = {**fields, "random_id": self.backend.groups.random_id()}
        self.backend.groups.submit(kind(on_reply=answer, **fields))

    def change(self, answer: Answer, act: Act) -> None:
        """Change the metadata; the answer comes with the version of this node's image."""
        backend = self.backend
        act(backend, lambda replies: answer(Changed(replies[0], backend.controller.committed)))

    def _find(self, place: Place) -> Partition | Refused:
        partition = self.backend.partitions.find(*place)
        if partition is not None:
            return partition
        return UNKNOWN if self.backend.controller.image.partition(*place) is None else NOT_HERE

    def _show(self, partition: Partition) -> None:
        node, watermark = self.backend.node.node_id, partition.high_watermark
        self._journal.watermarks.showed(key_of(partition), partition.leader_epoch, node, watermark)


def key_of(partition: Partition) -> str:
    """A partition's name for checkers: topics of one name may follow each other."""
    return f"{partition.name} of {partition.topic_id}"


def value_in(image: MetadataImage, register: Hashable) -> Hashable:
    """What an image says of something that clients change."""
    assert isinstance(register, Register)
    topic = image.topic(register.topic)
    match register.kind:
        case What.EXISTS:
            return topic is not None
        case What.PARTITIONS:
            return 0 if topic is None else len(topic.partitions)
        case What.SETTING:
            return image.config(ResourceKind.TOPIC, register.topic).get(SETTING)
        case _:
            assert_never(register.kind)
