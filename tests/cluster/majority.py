"""Two of three nodes are killed: what a write returns, and that writing goes on by itself."""

import random
from contextlib import closing

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from tests.cluster.stage import PARTITIONS, TOPIC, Stage, moment
from tests.support.wire import Wire

WRITE_MS = 5_000


def lose_majority(on: Stage, luck: random.Random) -> tuple[list[str], float]:
    """Kill two, try to write to the third, start the two again.

    Answers what the writes were refused with, and the seconds from the last ready line to the next
    accepted write.
    """
    cluster = on.cluster
    victims = luck.sample(sorted(cluster.nodes), 2)
    survivor = next(number for number in cluster.nodes if number not in victims)
    for number in victims:
        cluster.nodes[number].kill()
    refusals = [_refusal(on, survivor, partition) for partition in range(PARTITIONS)]
    for number in victims:
        cluster.nodes[number].launch()
    for number in victims:
        cluster.nodes[number].await_ready()
    back = moment()
    return refusals, on.outage(back, range(PARTITIONS))


def _refusal(on: Stage, number: int, partition: int) -> str:
    """What a write with acks=all gets from the node that is left; being accepted is an anomaly."""
    value = b"raw/%d/%d" % (partition, moment())
    # It may become part of the log later: refused is not the same as undone.
    on.load.histories[partition].sent.setdefault("raw", []).append(value)
    batch = bytes(write_batch([Record(0, 0, None, value)]))
    topic = ProduceRequestTopic(
        name=TOPIC, partition_data=(ProduceRequestPartition(index=partition, records=batch),)
    )
    with closing(Wire(on.cluster.address(number))) as wire:
        answer = wire.ask(
            ProduceRequest(acks=-1, timeout_ms=WRITE_MS, topic_data=(topic,)), ProduceResponse, 9
        )
    code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    if code is ErrorCode.NONE:
        on.verdict.anomalies.append(f"accepted without a majority: {value!r}")
    elif not code.retriable:
        on.verdict.anomalies.append(f"refused for good without a majority: {code.name}")
    return code.name
