"""What the pages about health say of a full disk, and of logs that cannot be used."""

import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.full_disk import full
from tests.support.clusters import until
from tests.support.nodes import NodeProcess
from tests.support.small_disk import small_disk

MEGABYTES = 96


def page(node: NodeProcess, name: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{node.ready['http']}/{name}", timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metric(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.ready['http']}/metrics", timeout=20) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def events_of(node: NodeProcess, name: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in node.events.read_text().splitlines() if line.startswith("{"))
    return [event for event in lines if event["event"] == name]


def create_and_fill(node: NodeProcess, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": node.kafka})
    for topic in topics:
        producer.produce(topic, b"value")
    assert producer.flush(30) == 0


def test_a_full_disk_is_said_once_and_shown_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MEGABYTES) as disk:
        node = NodeProcess(disk / "data").start()
        try:
            assert page(node, "ready") == (200, {"status": "ready"})
            with full(disk):
                until(lambda: page(node, "ready")[0] == 503, "the node is not ready")
                reason = page(node, "ready")[1]["reason"]
                assert page(node, "health") == (200, {"status": "ok", "reason": reason})
                assert metric(node, "penstock_disk_free_bytes") < 16 << 20
            until(lambda: page(node, "ready")[0] == 200, "the node is ready again")

            assert reason.startswith("disk full: ")
            assert reason.endswith(f" bytes free at {node.data_dir}")
            (event,) = events_of(node, "disk.full")
            assert event["path"] == str(node.data_dir)
            assert len(events_of(node, "disk.has_room")) == 1
        finally:
            node.kill()


def test_logs_that_cannot_be_used_are_named_while_the_others_serve(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data").start()
    try:
        create_and_fill(node, "lost", "rotten", "whole")
        assert node.stop() == 0
        shutil.rmtree(node.data_dir / "logs" / "lost")
        segment = node.data_dir / "logs" / "rotten" / "0" / f"{0:020}.log"
        content = bytearray(segment.read_bytes())
        content[-1] ^= 0xFF
        segment.write_bytes(content)
        os.truncate(node.data_dir / "logs" / "rotten" / "0" / "checkpoint", 10)
        node.start()

        status, shown = page(node, "ready")

        assert (status, shown["status"]) == (200, "ready")
        assert [line.split(": ")[:2] for line in shown["degraded"]] == [
            ["lost/0", "offline"],
            ["rotten/0", "damaged"],
        ]
        assert page(node, "health") == (200, {**shown, "status": "ok"})
        assert metric(node, "penstock_offline_partitions") == 1
        assert metric(node, "penstock_damaged_partitions") == 1
        assert node.stop() == 0
    finally:
        node.kill()
