"""What holds for every message, in every version, whatever it says."""

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import ProtocolError
from penstock.core.protocol.codec import (
    Message,
    Steps,
    decode_whole,
    decoder_in_steps,
    encoder_in_steps,
    exceeds_entries,
    gap_encoder,
    gap_encoder_in_steps,
)
from penstock.core.protocol.messages import APIS, Api
from penstock.core.protocol.primitives import TooManyEntries
from penstock.core.protocol.state_records import (
    OFFSETS_KEYS,
    TRANSACTION_KEYS,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    OffsetCommitValue,
    TransactionLogValue,
    read_key,
    read_stored,
    write_stored,
)
from tests.property.protocol.samples import sample, seeded

STORED_VALUES: list[type[Message]] = [
    OffsetCommitValue,
    GroupMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionValue,
    TransactionLogValue,
]

T = TypeVar("T")
PER_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


def every_version(api: Api) -> list[tuple[type[Message], int]]:
    return [(message, version) for message in (api.request, api.response) for version in api.versions]


def run(steps: Steps[T]) -> T:
    """What the last step returns."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, int]:
    api = draw(st.sampled_from(sorted(APIS.values(), key=lambda api: api.key)))
    message, version = draw(st.sampled_from(every_version(api)))
    seed = draw(st.integers(0, 2**32))
    return sample(seeded(str(seed)), message, version), version


@given(messages())
def test_what_is_encoded_decodes_to_the_same(case: tuple[Message, int]) -> None:
    message, version = case

    encoded = message.encode(version)

    assert decode_whole(type(message), encoded, version) == message
    assert decode_whole(type(message), memoryview(encoded), version) == message


@given(messages())
def test_in_steps_the_bytes_are_the_same(case: tuple[Message, int]) -> None:
    message, version = case
    encoded, pieces = bytearray(), bytearray()

    run(encoder_in_steps(type(message), version)(message, encoded))
    for piece in run(gap_encoder_in_steps(type(message), version)(message, bytearray())):
        assert isinstance(piece, bytes | bytearray | memoryview)
        pieces += piece

    assert encoded == pieces == message.encode(version)


@given(messages(), st.data())
def test_in_steps_a_message_is_the_same_or_has_too_many_entries(
    case: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = case
    allowed = data.draw(st.integers(0, 30))
    steps = decoder_in_steps(type(message), version)(memoryview(message.encode(version)), 0, allowed)

    if exceeds_entries(message, allowed):
        with pytest.raises(TooManyEntries):
            run(steps)
    else:
        assert run(steps)[0] == message


@given(messages(), st.data())
def test_damaged_bytes_are_read_or_refused_and_nothing_else(
    case: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = case
    damaged = bytearray(message.encode(version))
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    try:
        read = decode_whole(type(message), bytes(damaged), version)
    except ProtocolError:
        return

    assert decode_whole(type(message), read.encode(version), version) == read or has_nan(read)


def has_nan(message: Message) -> bool:
    return "nan" in repr(message)


@given(messages())
def test_pieces_put_together_are_the_message(case: tuple[Message, int]) -> None:
    message, version = case

    pieces = gap_encoder(type(message), version)(message, bytearray())

    assert b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray)) == message.encode(
        version
    )


@PER_API
def test_every_version_survives_the_round_trip_and_no_prefix_of_it_does(api: Api) -> None:
    random = seeded(api.name)
    for message, version in every_version(api):
        sent = sample(random, message, version)
        encoded = sent.encode(version)

        assert decode_whole(message, encoded, version) == sent
        for cut in range(len(encoded)):
            with pytest.raises(ProtocolError):
                decode_whole(message, encoded[:cut], version)


@pytest.mark.parametrize("message", STORED_VALUES, ids=lambda message: message.__name__)
def test_stored_values_carry_their_version(message: type[Message]) -> None:
    random = seeded(message.__name__)
    for version in message.__schema__.versions:
        for _ in range(5):
            value = sample(random, message, version)

            assert read_stored(message, write_stored(value, version)) == value


@pytest.mark.parametrize("keys", [OFFSETS_KEYS, TRANSACTION_KEYS], ids=["offsets", "transactions"])
def test_a_stored_key_is_told_by_its_version(keys: dict[int, type[Message]]) -> None:
    random = seeded("keys")
    for version, message in keys.items():
        key = sample(random, message, version)

        assert read_key(keys, write_stored(key, version)) == key
