"""Topics of a node that encrypts: readers see what was sent, the disk says nothing, and changes are found."""

from collections.abc import Callable

import pytest

from penstock.broker.configs import ConfigChanges
from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import ConfigChange, ConfigOperation, ConfigResource, ConfigResourceType, Ok
from penstock.core.model import SECOND, ApiError, ErrorKind
from penstock.core.records import check_batches, read_records
from penstock.storage.sealing import SEAL_BYTES, KeyVault, MasterKeys
from tests.support.key_vaults import CountedBytes, FixedKeys, vault_of
from tests.support.recorded_events import recorded_events
from tests.unit.broker.produce_and_fetch.conftest import Bench

MARKER = b"nobody may read this"
AT_ONCE = FetchLimits(min_bytes=1, max_bytes=50 << 20, max_wait_ms=0)
FIRST = "00000000000000000000.log"


@pytest.fixture
def bench() -> Bench:
    return Bench(vault_of())


def fetch(bench: Bench, partition: LeaderPartition, offset: int) -> FetchedPartition:
    answers = bench.fetch(AT_ONCE, FetchPartition(partition, offset, 50 << 20))
    bench.run(SECOND)
    ((found,),) = answers
    return found


def values(found: FetchedPartition) -> list[bytes | None]:
    assert found.records is not None, found.error
    content, shown, position = memoryview(found.records.to_bytes()), list[bytes | None](), 0
    for header in check_batches(content):
        shown += [record.value for record in read_records(content[position : position + header.size_bytes])]
        position += header.size_bytes
    return shown


def files_with(bench: Bench, marker: bytes) -> list[str]:
    disk = bench.node.disk
    return [path for path in disk.files() if marker in disk.read(path)]


def alter(bench: Bench, topic: str, value: str) -> Ok | ApiError:
    outcomes: list[Ok | ApiError] = []
    change = ConfigChange(ConfigOperation.SET, "encryption.at.rest", value)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    bench.backend.configs.change([ConfigChanges(resource, (change,))], outcomes.extend)
    bench.run(SECOND)
    return outcomes[0]


def rewrite(bench: Bench, path: str, change: Callable[[bytes], bytes]) -> None:
    """Somebody changes a file."""
    bench.run(SECOND)
    file = bench.node.disk.open(path)
    content = change(file.pread(0, file.size()))
    file.truncate(0)
    file.append(content)
    file.sync()
    file.close()


def restarted(bench: Bench, topic: str = "orders") -> LeaderPartition:
    bench.node.kill()
    bench.node.start()
    bench.run(5 * SECOND)
    partition = bench.backend.partitions.find(topic, 0)
    assert partition is not None
    return partition


def batches_of(content: bytes) -> list[bytes]:
    found, position = [], 0
    for header in check_batches(content, compacted=True):
        found.append(content[position : position + header.size_bytes])
        position += header.size_bytes
    return found


def test_records_are_read_as_they_were_sent_and_no_file_has_them() -> None:
    bench, plain = Bench(vault_of()), Bench()

    for one in (bench, plain):
        orders = one.topic()
        for number in range(5):
            one.written(orders, MARKER + b"%d" % number)
        assert values(fetch(one, orders, 0)) == [MARKER + b"%d" % number for number in range(5)]

    assert files_with(bench, MARKER) == []
    # The same search finds them where nothing is encrypted, in the log and in the journal.
    assert {path.split("/")[0] for path in files_with(plain, MARKER)} == {"logs", "meta"}


def test_they_are_read_after_a_restart_too(bench: Bench) -> None:
    bench.written(bench.topic(), MARKER)

    orders = restarted(bench)

    assert values(fetch(bench, orders, 0)) == [MARKER]
    assert files_with(bench, MARKER) == []


def test_a_large_fetch_is_opened_over_several_turns_of_the_loop(bench: Bench) -> None:
    orders = bench.topic()
    for number in range(40):
        bench.written(orders, b"%d" % number * 50_000)
    answers = bench.fetch(AT_ONCE, FetchPartition(orders, 0, 50 << 20))

    assert answers == []
    bench.run(SECOND)

    ((found,),) = answers
    assert len(values(found)) == 40


@pytest.mark.parametrize("byte", [3, 20, 61, 70, 85])
def test_a_changed_byte_is_found_named_and_not_served(bench: Bench, byte: int) -> None:
    orders = bench.topic()
    for number in range(3):
        bench.written(orders, b"%d" % number)
    path = f"{orders.log.directory}/{FIRST}"
    size = bench.node.disk.size(path) // 3
    bench.node.disk.flip_bit(path, 8 * (size + byte))

    found = fetch(bench, orders, 1)

    assert found.records is None
    assert found.error is not None
    assert found.error.kind is ErrorKind.CORRUPT_BATCH
    assert values(fetch(bench, orders, 2)) == [b"2"]


def test_batches_that_changed_places_are_not_served(bench: Bench) -> None:
    orders = bench.topic()
    for number in range(3):
        bench.written(orders, b"%d" % number)

    def swapped(content: bytes) -> bytes:
        first, second, third = batches_of(content)
        # Each with the offset of the other one, and the CRC does not cover that.
        return first[:8] + second[8:] + second[:8] + first[8:] + third

    rewrite(bench, f"{orders.log.directory}/{FIRST}", swapped)
    with recorded_events() as events:
        assert fetch(bench, orders, 0).records is None
        assert fetch(bench, orders, 1).records is None
        found = [fetch(bench, orders, offset) for offset in range(3)]

    assert [part.error and part.error.kind for part in found[:2]] == [ErrorKind.CORRUPT_BATCH] * 2
    assert values(found[2]) == [b"2"]
    assert "seal" in str(events.named("partition.corrupt_range")[0]["reason"])


def test_a_batch_of_another_partition_is_not_served(bench: Bench) -> None:
    orders, others = bench.topic("orders"), bench.topic("others")
    bench.written(orders, b"mine")
    bench.written(others, b"from")
    foreign = bench.node.disk.read(f"{others.log.directory}/{FIRST}")

    rewrite(bench, f"{orders.log.directory}/{FIRST}", lambda _: foreign)
    with recorded_events() as events:
        found = fetch(bench, orders, 0)

    assert found.records is None
    assert found.error is not None
    assert "not that of its segment" in str(events.named("partition.corrupt_range")[0]["reason"])


def test_a_plain_batch_in_place_of_a_sealed_one_is_not_served(bench: Bench) -> None:
    orders = bench.topic()
    bench.written(orders, b"mine")
    forged = bytes(bench.batch(b"mine" + b"!" * SEAL_BYTES))
    # In the leader epoch of those that were appended, which no CRC covers.
    forged = forged[:12] + bytes(4) + forged[16:]

    rewrite(bench, f"{orders.log.directory}/{FIRST}", lambda _: forged)
    with recorded_events() as events:
        found = fetch(bench, orders, 0)

    assert found.records is None
    assert found.error is not None
    assert "is not sealed, and should be" in str(events.named("partition.corrupt_range")[0]["reason"])


def test_a_topic_that_is_not_to_be_encrypted_is_not(bench: Bench) -> None:
    orders = bench.topic(encryption_at_rest="false")

    bench.written(orders, MARKER)

    assert files_with(bench, MARKER) != []
    assert values(fetch(bench, orders, 0)) == [MARKER]


def test_a_running_topic_is_switched_in_both_directions_from_the_next_segment_on(bench: Bench) -> None:
    orders = bench.topic(encryption_at_rest="false")
    bench.written(orders, b"in clear first")

    assert not isinstance(alter(bench, "orders", "true"), ApiError)
    bench.written(orders, MARKER)
    assert files_with(bench, MARKER) == []
    assert not isinstance(alter(bench, "orders", "false"), ApiError)
    bench.written(orders, b"in clear again")

    assert files_with(bench, b"in clear again") != []
    for partition in (orders, restarted(bench)):
        read = [values(fetch(bench, partition, offset)) for offset in range(3)]
        assert read == [[b"in clear first"], [MARKER], [b"in clear again"]]


def test_where_there_are_no_keys_no_topic_is_encrypted() -> None:
    bench = Bench()
    bench.topic("present")

    outcome = alter(bench, "present", "true")
    with pytest.raises(AssertionError, match="there are no keys"):
        bench.topic("new", encryption_at_rest="true")

    assert isinstance(outcome, ApiError)
    assert outcome.kind is ErrorKind.INVALID_CONFIG
    assert "there are no keys" in outcome.detail


def test_what_a_node_had_before_it_encrypted_stays_readable() -> None:
    bench = Bench()
    bench.written(bench.topic(), b"from before")

    bench.vault = vault_of()
    orders = restarted(bench)
    bench.written(orders, MARKER)

    assert values(fetch(bench, orders, 0)) == [b"from before"]
    assert values(fetch(bench, orders, 1)) == [MARKER]
    assert files_with(bench, MARKER) == []


def test_a_partition_whose_key_is_missing_is_offline_until_the_key_is_back() -> None:
    keys = LosableKeys("first", "second")
    bench = Bench(keys.vault())
    bench.written(bench.topic("others"), b"under the second key")
    assert bench.vault is not None
    bench.vault.adopt(keys.load()._replace(current="first"))
    bench.written(bench.topic("orders"), b"under the first key")
    bench.node.kill()

    keys.missing = ["first"]
    bench.vault = keys.vault()
    with recorded_events() as events:
        bench.node.start()
        bench.run(5 * SECOND)

    partitions = bench.backend.partitions
    assert partitions.find("orders", 0) is None
    assert "the master key 'first' is not there" in str(partitions.offline_reason("orders", 0))
    assert "'first'" in str(events.named("partition.not_opened")[0]["error"])
    others = partitions.find("others", 0)
    assert others is not None
    assert values(fetch(bench, others, 0)) == [b"under the second key"]

    keys.missing = []
    bench.run(30 * SECOND)

    orders = partitions.find("orders", 0)
    assert orders is not None
    assert partitions.offline_reason("orders", 0) is None
    assert values(fetch(bench, orders, 0)) == [b"under the first key"]


def test_another_key_under_a_name_that_is_known_is_refused_when_keys_are_read_again() -> None:
    keys = LosableKeys("first", "second")
    bench = Bench(keys.vault())
    assert bench.vault is not None
    bench.vault.adopt(keys.load()._replace(current="first"))
    bench.written(bench.topic("orders"), b"under the first key")
    bench.node.kill()
    keys.missing = ["first"]
    bench.vault = keys.vault()
    before = bench.vault.keys

    keys.missing, keys.changed = [], "second"
    with recorded_events() as events:
        bench.node.start()
        bench.run(30 * SECOND)

    assert "another key that is called 'second'" in str(events.named("keys.not_reloaded")[0]["error"])
    assert bench.vault.keys == before
    assert bench.backend.partitions.find("orders", 0) is None

    keys.changed = ""
    bench.run(60 * SECOND)

    orders = bench.backend.partitions.find("orders", 0)
    assert orders is not None
    assert values(fetch(bench, orders, 0)) == [b"under the first key"]


class LosableKeys(FixedKeys):
    """A key service from which keys can be taken away, or another one put in the place of one."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.missing: list[str] = []
        self.changed = ""

    def load(self) -> MasterKeys:
        keys = super().load()
        kept = {name: secret for name, secret in keys.secrets.items() if name not in self.missing}
        if self.changed:
            kept[self.changed] = b"B" * 32
        return keys._replace(secrets=kept)

    def vault(self) -> KeyVault:
        return KeyVault(self, self.load(), CountedBytes())
