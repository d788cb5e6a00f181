import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster.admin_client import (
    InvalidTarget,
    Layout,
    bytes_per_second,
    chosen,
    nodes,
    read_plan,
    spread,
)

LAYOUT: Layout = {"t": {0: (1, 2), 1: (2, 1), 2: (1, 2)}, "u.v": {0: (1,)}}


def test_a_topic_stands_for_its_partitions_and_a_partition_for_itself() -> None:
    assert chosen(["t"], LAYOUT) == [("t", 0), ("t", 1), ("t", 2)]
    assert chosen(["u.v:0", "t:1"], LAYOUT) == [("u.v", 0), ("t", 1)]


def test_what_is_named_twice_counts_once() -> None:
    assert chosen(["t:1", "t"], LAYOUT) == [("t", 1), ("t", 0), ("t", 2)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("w", "there is no topic w"),
        ("w:0", "there is no topic w"),
        ("t:3", "topic t has no partition 3"),
        ("t:", "topic t has no partition (empty)"),
        ("t:-1", "topic t has no partition -1"),
    ],
)
def test_what_is_not_there_is_named(text: str, complaint: str) -> None:
    with pytest.raises(InvalidTarget) as refusal:
        chosen([text], LAYOUT)

    assert str(refusal.value) == complaint


def test_nodes_are_numbers_and_each_is_named_once() -> None:
    assert nodes("--to", "3, 1,2") == (3, 1, 2)
    for text in ("", "1,", "a", "1,1", "-1"):
        with pytest.raises(InvalidTarget, match="--to"):
            nodes("--to", text)


def test_partitions_of_one_move_take_turns_with_their_preferred_leader() -> None:
    assert spread([("t", 0), ("t", 1), ("t", 2)], (1, 2, 3)) == {
        ("t", 0): (1, 2, 3),
        ("t", 1): (2, 3, 1),
        ("t", 2): (3, 1, 2),
    }


def test_a_single_partition_gets_exactly_what_was_asked_for() -> None:
    assert spread([("t", 2)], (1, 2, 3)) == {("t", 2): (1, 2, 3)}


def test_a_plan_has_the_form_that_kafkas_tool_has(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    rows = [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))

    assert read_plan(str(path)) == {("t", 0): (1, 2)}


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("{", "is no plan"),
        ([], "is no plan"),
        ({"partitions": 3}, "is no plan"),
        ({"partitions": [{"topic": "t"}]}, "is no plan"),
        ({"partitions": []}, "moves nothing"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}, "has no list of node ids"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}, "has no list of node ids"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "names a partition twice"),
    ],
)
def test_what_is_no_plan_is_refused(plan: Any, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan if isinstance(plan, str) else json.dumps(plan))

    with pytest.raises(InvalidTarget, match=complaint):
        read_plan(str(path))


def test_a_plan_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidTarget, match=r"nowhere\.json: No such file"):
        read_plan("nowhere.json")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1", 1), ("10485760", 10485760), ("50M", 50_000_000), ("1Gi", 1 << 30), ("64KiB/s", 65536)],
)
def test_rates_may_have_units(text: str, rate: int) -> None:
    assert bytes_per_second("--throttle", text) == rate


@pytest.mark.parametrize("text", ["", "0", "M", "1.5M", "-1", "10x", "1 M M"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidTarget, match="expected bytes per second"):
        bytes_per_second("--throttle", text)
