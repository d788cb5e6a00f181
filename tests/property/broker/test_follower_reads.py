"""What followers serve to consumers is committed: it stays, whoever leads."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition, FetchService
from penstock.broker.lease import FOREVER, BrokerLease
from penstock.broker.read_replicas import ReadReplicaSelector
from penstock.core.model import NodeId
from penstock.core.records import check_batches, read_records
from tests.unit.broker.replication.stage import Stage, append, values_of

NODES = (NodeId(1), NodeId(2), NodeId(3))
AT_ONCE = FetchLimits(1, 1 << 20, 0)
STEPS = st.tuples(
    st.sampled_from(("append", "append", "append", "kill leader", "kill", "start")),
    st.sampled_from((1, 2, 5, 20, 200)),
)


class RackReaders:
    """Consumers at every follower, which compare what they get."""

    def __init__(self, seed: int) -> None:
        self.stage = stage = Stage(seed=seed)
        stage.create(1, 2, 3)
        self.seen: dict[int, bytes] = {}
        # The highest that any leader's high watermark was.
        self.committed = 0

    def is_up(self, node: NodeId) -> bool:
        return self.stage.world.nodes[self.stage.name_of(node)].is_up

    def perform(self, step: str, number: int) -> None:
        stage = self.stage
        state = stage.machine.image.partition("t", 0)
        assert state is not None
        down = [node for node in NODES if not self.is_up(node)]
        leads = state.leader in NODES and self.is_up(state.leader)
        led = stage.brokers[state.leader].partitions.find("t", 0) if leads else None
        if step == "append" and led is not None:
            led.readers_redirected()
            append(led, str(number))
        elif step == "start" and down:
            stage.start(down[0])
        elif step.startswith("kill") and led is not None and not down:
            stage.kill(state.leader if step == "kill leader" else NODES[number % 3])

    def observe(self) -> None:
        """Note what is committed, as leaders know it."""
        for node in NODES:
            led = self.stage.brokers[node].partitions.find("t", 0) if self.is_up(node) else None
            if led is not None:
                self.committed = max(self.committed, led.high_watermark)

    def read(self) -> None:
        """Read every follower from its start."""
        self.observe()
        for node in NODES:
            broker = self.stage.brokers[node]
            followed = ReadReplicaSelector(self.stage.machine, broker.partitions, node).followed("t", 0)
            if followed is None or not self.is_up(node):
                continue

            def answered(found: list[FetchedPartition]) -> None:
                self.observe()
                content = b"" if found[0].records is None else found[0].records.to_bytes()
                self._compare(content)

            want = FetchPartition(followed, followed.log.start, 1 << 20)
            FetchService(broker.runtime, BrokerLease(FOREVER)).fetch([want], AT_ONCE, answered)
            # A log that was just opened is verified first.
            self.stage.run(5)

    def _compare(self, content: bytes) -> None:
        while content:
            header = check_batches(content)[0]
            for record in read_records(content[: header.size_bytes]):
                value = record.value or b""
                assert record.offset < self.committed, f"{record.offset} was served and not committed"
                assert self.seen.setdefault(record.offset, value) == value, f"{record.offset} has changed"
            content = content[header.size_bytes :]

    def finish(self) -> None:
        for node in NODES:
            if not self.is_up(node):
                self.stage.start(node)
        self.stage.run(3_000)


@settings(max_examples=10)
@given(seed=st.integers(0, 1_000), steps=st.lists(STEPS, min_size=10, max_size=40))
def test_what_followers_served_stays_whoever_leads(seed: int, steps: list[tuple[str, int]]) -> None:
    """Leaders die, and come back with what nobody else had: no follower ever shows that."""
    readers = RackReaders(seed)

    for number, (step, ms) in enumerate(steps):
        readers.perform(step, number)
        readers.stage.run(ms)
        readers.read()
    readers.finish()
    readers.read()

    kept = [value.encode() for value in values_of(readers.stage.leader().log)]
    assert readers.seen == dict(enumerate(kept))
