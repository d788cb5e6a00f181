"""Member metadata is whatever a client sends: reading it never raises."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.groups import subscribed_topics
from tests.unit.core.groups.group_driver import subscription

names = st.text(max_size=20)


@given(st.binary(max_size=200))
def test_any_bytes_are_topics_or_unknown(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)

    assert topics is None or all(isinstance(topic, str) for topic in topics)


@given(st.lists(names, max_size=10), st.binary(max_size=20))
def test_what_a_consumer_subscribes_to_is_read(topics: list[str], user_data: bytes) -> None:
    assert subscribed_topics(subscription(*topics, user_data=user_data)) == tuple(topics)


@given(st.lists(names, max_size=4), st.data())
def test_damaged_subscriptions_do_not_raise(topics: list[str], data: st.DataObject) -> None:
    metadata = bytearray(subscription(*topics))
    where = data.draw(st.integers(0, len(metadata) - 1))

    metadata[where] = data.draw(st.integers(0, 255))

    subscribed_topics(bytes(metadata))
