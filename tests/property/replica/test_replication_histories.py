"""Whatever happens to brokers and links, what was acknowledged to all replicas stays where it was."""

import random

import pytest

from penstock.broker.partitions import FsyncMode, LeaderPartition
from penstock.core.model import ApiError, NodeId, Offset
from penstock.sim import NetworkFaults
from tests.unit.broker.replication.stage import Stage, append, values_of

NODES = (1, 2, 3)
STEPS = 120
HEALING_MS = 15_000


class History:
    """Random faults, and unique values appended through them."""

    def __init__(self, seed: int, fsync: FsyncMode) -> None:
        self.luck = random.Random(seed)
        self.stage = Stage(seed=seed, fsync=fsync)
        self.fsync = fsync
        self.stage.create(1, 2, 3, partitions=2)
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.watermarks: dict[LeaderPartition, int] = {}
        self.number = 0

    def step(self) -> None:
        faults = (self.kill, self.kill_leader, self.start, self.start, self.pause, self.resume, self.resume)
        weather = (self.cut, self.mend, self.blow, self.slow_down, self.lose_proposals, self.lose_proposals)
        self.luck.choice((*[self.append] * 12, *faults, *weather))()
        self.stage.run(self.luck.choice([0, 1, 3, 10, 40, 300]))
        self.look()

    def is_up(self, node: int) -> bool:
        return self.stage.world.nodes[f"n{node}"].is_up

    def append(self) -> None:
        index = self.luck.randrange(2)
        for node in NODES:
            if not self.is_up(node) or NodeId(node) not in self.stage.brokers:
                continue
            # Also on those that do not know yet that they are leaders no more.
            partition = self.stage.brokers[NodeId(node)].partitions.find("t", index)
            if partition is not None and partition.stopped is None and partition.has_min_isr:
                for _ in range(self.luck.randint(1, 4)):
                    self.append_to(partition, index)

    def append_to(self, partition: LeaderPartition, index: int) -> None:
        self.number += 1
        value = f"v{self.number}"
        offset = partition.log.end
        append(partition, value)

        def done(error: ApiError | None) -> None:
            if error is None:
                self.note(index, offset, value)

        if partition.when_acknowledged(Offset(offset + 1), done):
            self.note(index, offset, value)

    def note(self, index: int, offset: int, value: str) -> None:
        assert self.acknowledged.setdefault((index, offset), value) == value

    def kill(self) -> None:
        up = [node for node in NODES if self.is_up(node)]
        # What is not synced before it is acknowledged may be lost with too many of those who have it.
        if len(up) > (1 if self.fsync is FsyncMode.EVERY else 2):
            power = self.fsync is FsyncMode.EVERY and self.luck.random() < 0.7
            self.stage.kill(self.luck.choice(up), power=power)

    def kill_leader(self) -> None:
        state = self.stage.machine.image.partition("t", 0)
        assert state is not None
        if state.leader in NODES and self.is_up(state.leader) and self.fsync is FsyncMode.EVERY:
            self.stage.kill(state.leader, power=True)

    def start(self) -> None:
        down = [node for node in NODES if not self.is_up(node)]
        if down:
            self.stage.start(self.luck.choice(down))

    def pause(self) -> None:
        node = self.luck.choice(NODES)
        if self.is_up(node) and NodeId(node) in self.stage.brokers:
            self.stage.world.nodes[f"n{node}"].pause()
            if self.luck.random() < 0.5:
                self.stage.fence(node)

    def resume(self) -> None:
        for node in NODES:
            self.stage.world.nodes[f"n{node}"].resume()
            broker = self.stage.machine.image.broker(node)
            if self.is_up(node) and broker is not None and broker.fenced:
                self.stage.unfence(node)

    def cut(self) -> None:
        one, other = self.luck.sample(NODES, 2)
        self.stage.world.network.cut(f"n{one}", f"n{other}")

    def mend(self) -> None:
        self.stage.world.network.heal_all()
        self.stage.world.network.network_faults = NetworkFaults()
        for node in NODES:
            self.stage.world.nodes[f"n{node}"].pace.slowness = 1

    def blow(self) -> None:
        self.stage.world.network.network_faults = NetworkFaults(loss=0.03, duplicate=0.05, reorder=0.3)

    def slow_down(self) -> None:
        node = self.luck.choice(NODES)
        self.stage.world.nodes[f"n{node}"].pace.slowness = self.luck.choice([1, 1, 20, 300])

    def lose_proposals(self) -> None:
        self.stage.drop_commands = self.luck.randint(0, 2)
        self.stage.drop_replies = self.luck.randint(0, 2)

    def look(self) -> None:
        """What holds at every moment."""
        for broker in self.stage.brokers.values():
            for partition in broker.partitions.led():
                before = self.watermarks.get(partition, 0)
                assert partition.high_watermark >= before, "the high watermark went back"
                self.watermarks[partition] = partition.high_watermark
                assert partition.high_watermark <= partition.log.end

    def heal(self) -> None:
        self.stage.drop_commands = self.stage.drop_replies = 0
        self.mend()
        self.resume()
        self.stage.start_all()
        for _ in range(HEALING_MS // 1_000):
            self.stage.run(1_000)
            self.look()

    def judge(self) -> None:
        for index in range(2):
            logs = [self.stage.log(node, index) for node in NODES]
            values = values_of(logs[0])
            assert self.stage.isr(index) == [1, 2, 3]
            assert [values_of(log) for log in logs] == [values] * 3
            assert self.stage.leader(index).high_watermark == logs[0].end
            for (where, offset), value in self.acknowledged.items():
                if where == index:
                    assert values[offset] == value, f"offset {offset} was acknowledged as {value}"


@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_stays(seed: int) -> None:
    history = History(seed, FsyncMode.EVERY)

    for _ in range(STEPS):
        history.step()
    history.heal()

    history.judge()
    assert history.acknowledged


@pytest.mark.parametrize("seed", range(100, 104))
def test_without_syncs_what_was_acknowledged_survives_the_loss_of_one_process_at_a_time(seed: int) -> None:
    history = History(seed, FsyncMode.NONE)

    for _ in range(STEPS):
        history.step()
    history.heal()

    history.judge()
    assert history.acknowledged
