"""What the metadata host reads back: its snapshots, behind the CRC too, and HTTP requests."""

import random
from uuid import UUID

from fuzz.harness import Target
from penstock.broker.cluster.raft_storage import decode_snapshot, encode_snapshot
from penstock.core.metadata import ClusterIdSet, ConfigSet, Fact, Partition, PartitionCreated, TopicCreated
from penstock.core.metadata.image import ConfigResourceType
from penstock.core.model import CorruptionError, NodeId, Offset, PartitionIndex, TopicId, TopicName
from penstock.core.raft import Configuration, Index, Member, SnapshotMeta, Term
from penstock.server.http import HttpResponse
from penstock.server.http.server import respond
from penstock.storage.log.files import FileKind, frame, unframe

FRAME_BYTES = 16


def a_snapshot(rng: random.Random) -> bytes:
    facts: list[Fact] = [ClusterIdSet("ckoCk10FRIC9otvJhmyoWA")]
    for number in range(rng.randint(0, 3)):
        topic, node = TopicId(UUID(int=rng.getrandbits(128))), (NodeId(1),)
        facts.append(TopicCreated(TopicName(f"topic-{number}"), topic))
        facts.append(PartitionCreated(topic, Partition(PartitionIndex(0), node, node, NodeId(1))))
        facts.append(ConfigSet(ConfigResourceType.TOPIC, f"topic-{number}", "retention.ms", "1000"))
    voters = Configuration((Member(NodeId(1), UUID(int=rng.getrandbits(128))),))
    meta = SnapshotMeta(Index(rng.randint(0, 9_999)), Term(rng.randint(0, 9)), voters)
    return encode_snapshot(meta, Offset(rng.randint(0, 9_999)), facts)


def behind_the_crc(content: bytes) -> object:
    return decode_snapshot(frame(FileKind.METADATA, content))


def a_request(rng: random.Random) -> bytes:
    path = rng.choice(("/metrics", "/health", "/nothing?a=b"))
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode()


def answered(content: bytes) -> object:
    return respond(content, {"/metrics": lambda: HttpResponse(200, b"x")})


TARGETS = (
    Target("metadata.snapshot", a_snapshot, decode_snapshot, (CorruptionError,)),
    Target(
        "metadata.snapshot.reframed",
        lambda rng: bytes(unframe(FileKind.METADATA, a_snapshot(rng))),
        behind_the_crc,
        (CorruptionError,),
    ),
    Target("http.request", a_request, answered, ()),
)
