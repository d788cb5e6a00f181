"""A classic group with cooperative assignment: nine members, and then a tenth."""

import os
import time
from collections.abc import Sequence
from typing import Any

from penstock.cli.bench.report import Figures
from penstock.cli.bench.scenarios import BenchTarget
from penstock.client import ClientError, Endpoint
from penstock.client.endpoint import opened

MEMBERS = 10
PARTITIONS = 3 * MEMBERS * (MEMBERS - 1)
SECONDS_MAX = 60.0
# librdkafka's default, and one so short that what remains is not the heartbeat's.
HEARTBEAT_MS = 3_000
SHORT_HEARTBEAT_MS = 200


def rebalance(target: BenchTarget) -> Figures:
    """How long the tenth member's join takes, and how much of that is members not having heard of it yet."""
    usual_ms = _tenth_joins(target, HEARTBEAT_MS)
    short_ms = _tenth_joins(target, SHORT_HEARTBEAT_MS)
    # The time is a + b times the interval: two intervals tell b.
    per_interval = max(0.0, (usual_ms - short_ms) / (HEARTBEAT_MS - SHORT_HEARTBEAT_MS))
    return {
        "rebalance_ms": round(usual_ms),
        "rebalance_short_heartbeat_ms": round(short_ms),
        "heartbeat_share": round(per_interval * HEARTBEAT_MS / usual_ms, 2),
        "without_heartbeat_ms": round(max(0.0, short_ms - per_interval * SHORT_HEARTBEAT_MS)),
    }


def _tenth_joins(target: BenchTarget, heartbeat_ms: int) -> float:
    with target.topic(PARTITIONS) as topic:
        group = f"{topic}-{os.urandom(3).hex()}"
        members = [_member(target.endpoint, group, heartbeat_ms) for _ in range(MEMBERS)]
        try:
            for member in members[:-1]:
                member.subscribe([topic])
            _await_balance(members[:-1])
            began = time.perf_counter_ns()
            members[-1].subscribe([topic])
            _await_balance(members)
            return (time.perf_counter_ns() - began) / 1e6
        finally:
            for member in members:
                member.close()


def _member(endpoint: Endpoint, group: str, heartbeat_ms: int) -> Any:
    from confluent_kafka import Consumer

    return opened(
        Consumer,
        endpoint.settings(
            group_id=group,
            partition_assignment_strategy="cooperative-sticky",
            heartbeat_interval_ms=heartbeat_ms,
            session_timeout_ms=45_000,
            auto_offset_reset="latest",
            enable_auto_commit=False,
        ),
    )


def _await_balance(members: Sequence[Any]) -> None:
    share = PARTITIONS // len(members)
    deadline = time.perf_counter() + SECONDS_MAX
    while True:
        for member in members:
            member.poll(0)
        if all(len(member.assignment()) == share for member in members):
            return
        if time.perf_counter() > deadline:
            held = [len(member.assignment()) for member in members]
            raise ClientError(f"no balance among {len(members)} members within {SECONDS_MAX:.0f} s: {held}")
        time.sleep(0.002)
