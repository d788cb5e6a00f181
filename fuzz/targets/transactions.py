"""Records of the transaction topic, and the requests of batch commit over HTTP."""

import random

from fuzz.harness import Target
from penstock.broker.coordinator.transaction_records import STATES, decode, encode
from penstock.core.model import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProtocolError,
    Timestamp,
    TopicName,
    TopicPartition,
)
from penstock.core.transactions import BatchCommitted, BatchMember, Fact, TransactionStored
from penstock.server.http import BatchResource, HttpRequest


def a_record(rng: random.Random) -> bytes:
    """A key and a value, with the length of the key in front."""
    fact: Fact = TransactionStored(
        f"id-{rng.randint(0, 9)}",
        ProducerId(rng.randint(0, 2**40)),
        ProducerEpoch(rng.randint(0, 9)),
        60_000,
        rng.choice(STATES[:6]),
        Timestamp(rng.randint(0, 2**40)),
        tuple(TopicPartition(TopicName("t"), PartitionIndex(n)) for n in range(rng.randint(0, 3))),
        next_producer_id=ProducerId(rng.randint(-1, 9)),
    )
    if rng.random() < 0.3:
        members = (BatchMember("s#1", ProducerId(4), ProducerEpoch(1)),) * rng.randint(0, 3)
        fact = BatchCommitted("s", str(rng.randint(0, 9)), members, Timestamp(5))
    key, value = encode(fact)
    return len(key).to_bytes(1, "big") + key + (value or b"")


def read_record(data: bytes) -> object:
    size = data[0] if data else 0
    return decode(data[1 : 1 + size], data[1 + size :])


def a_batch(rng: random.Random) -> bytes:
    rows = ",".join(
        f'{{"transactional_id":"s#{n}","producer_id":{n},"producer_epoch":{rng.randint(0, 9)}}}'
        for n in range(rng.randint(0, 3))
    )
    return f's/{rng.randint(0, 99)}\n{{"transactions":[{rows}]}}'.encode()


def put_batch(data: bytes) -> object:
    path, _, body = data.partition(b"\n")
    responses: list[object] = []
    BatchResource(lambda *_: responses.append(None))(
        HttpRequest(path.decode("latin-1"), body), responses.append
    )
    assert len(responses) == 1
    return responses


TARGETS = (
    Target("transactions.record", a_record, read_record, (ProtocolError,)),
    Target("transactions.http_batch", a_batch, put_batch, ()),
)
