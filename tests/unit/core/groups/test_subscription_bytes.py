"""Reading the topics out of a consumer's metadata, which may be anything."""

import struct

import pytest

from penstock.core.groups import subscribed_topics
from tests.unit.core.groups.group_driver import subscription


def test_topics_are_read_in_order_and_the_rest_is_skipped() -> None:
    metadata = subscription("b", "a", "ünï", user_data=b"owned partitions")

    assert subscribed_topics(metadata) == ("b", "a", "ünï")


@pytest.mark.parametrize(
    "foreign",
    [
        "00000000000200066f726465727300087061796d656e7473000000027564",
        "00010000000200066f726465727300087061796d656e747300000002756400000000",
        "00020000000200066f726465727300087061796d656e74730000000275640000000000000005",
        "00030000000200066f726465727300087061796d656e7473000000027564000000000000000500027231",
    ],
    ids=["version 0", "version 1", "version 2", "version 3"],
)
def test_subscriptions_encoded_by_kafka_python_are_read(foreign: str) -> None:
    assert subscribed_topics(bytes.fromhex(foreign)) == ("orders", "payments")


def test_a_subscription_to_nothing_is_read() -> None:
    assert subscribed_topics(subscription()) == ()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00\x01",
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 1, -1),
        struct.pack(">hi", 1, 2**31 - 1) + b"\x00" * 100,
        struct.pack(">hih", 1, 1, -1),
        struct.pack(">hih", 1, 1, 5) + b"abcd",
        struct.pack(">hih", 1, 1, 2) + b"\xff\xfe",
        struct.pack(">hih", 1, 2, 4) + b"abcd",
    ],
    ids=[
        "nothing",
        "cut in the head",
        "negative version",
        "null topics",
        "hostile count",
        "null name",
        "cut in a name",
        "not UTF-8",
        "one name missing",
    ],
)
def test_what_is_not_a_subscription_is_unknown(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_every_cut_of_a_subscription_is_either_whole_or_unknown() -> None:
    whole = subscription("alpha", "beta", user_data=b"xyz")
    names_end = 6 + 2 + 5 + 2 + 4

    results = [subscribed_topics(whole[:end]) for end in range(len(whole) + 1)]

    assert results == [None] * names_end + [("alpha", "beta")] * (len(whole) + 1 - names_end)
