"""What happens to a node's callbacks, disk and links when the world is unkind."""

from collections.abc import Callable

import pytest

from penstock.core.model import MILLISECOND, SECOND, Instant, StorageError
from penstock.runtime import Address, Callback, CloseReason, ExecutorKind, Link, NodeIdentity, Runtime
from penstock.sim import NetworkFaults, World
from penstock.sim.incarnation import TIMER, Incarnation
from penstock.sim.network import SimulatedLink
from penstock.sim.scheduler import Scheduler
from penstock.sim.trace import Trace
from penstock.sim.world import FlippedByte
from penstock.storage.disk import Disk, FailureRule

DOOR = Address("b", 7000)


class Peer:
    """A service that notes every call; `b` listens, the others call it."""

    def __init__(self, runtime: Runtime, disk: Disk) -> None:
        self.runtime = runtime
        self.disk = disk
        self.notes: list[str] = []
        self.links: list[Link] = []

    def listen(self) -> None:
        self.runtime.transport.listen(DOOR, self)

    def call(self) -> None:
        self.runtime.transport.connect(DOOR, self)

    def after(self, delay_ms: int, note: str) -> None:
        deadline = Instant(self.runtime.clock.now() + delay_ms * MILLISECOND)
        self.runtime.timers.at(deadline, lambda: self.notes.append(note))

    def opened(self, link: Link, peer: NodeIdentity) -> None:
        self.links.append(link)
        self.notes.append(f"opened {peer.node_id}")

    def received(self, link: Link, frame: bytes) -> None:
        self.notes.append(frame.decode())

    def drained(self, link: Link) -> None:
        self.notes.append("drained")

    def closed(self, link: Link, ending: CloseReason) -> None:
        self.notes.append(ending.name)

    def stop(self, done: Callback) -> None:
        self.notes.append("stopping")
        done()


class Stage:
    """A world with two peers, `a` calling and `b` listening."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.peers: dict[str, Peer] = {}
        for name in ("a", "b"):
            self.world.add(name, self._program(name))
        self.world.start_all()

    def _program(self, name: str) -> Callable[[Runtime, Disk], Peer]:
        def program(runtime: Runtime, disk: Disk) -> Peer:
            self.peers[name] = Peer(runtime, disk)
            return self.peers[name]

        return program

    @property
    def a(self) -> Peer:
        return self.peers["a"]

    @property
    def b(self) -> Peer:
        return self.peers["b"]

    def connect(self) -> None:
        self.b.listen()
        self.a.call()
        self.world.run(SECOND)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_call_opens_a_link_at_both_ends_and_frames_pass(stage: Stage) -> None:
    stage.connect()
    stage.a.links[0].send(b"to", b" b")
    stage.b.links[0].send(b"to a")
    received_inside = list(stage.b.notes)
    stage.world.run(SECOND)

    assert received_inside == ["opened 1"]
    assert stage.a.notes == ["opened 2", "to a"]
    assert stage.b.notes == ["opened 1", "to b"]


def test_nobody_listening_refuses_and_no_power_is_silence(stage: Stage) -> None:
    stage.a.call()
    stage.world.run(3 * SECOND)
    stage.world.nodes["b"].cut_power()
    stage.a.call()
    stage.world.run(3 * SECOND)

    assert stage.a.notes == ["REFUSED", "UNREACHABLE"]


@pytest.mark.parametrize(("how", "ending"), [("kill", "ENDED"), ("cut_power", "SILENT")])
def test_the_death_of_a_node_reaches_its_peers(stage: Stage, how: str, ending: str) -> None:
    stage.connect()

    getattr(stage.world.nodes["b"], how)()
    stage.world.run(20 * SECOND)

    assert stage.a.notes == ["opened 2", ending]


def test_a_one_way_cut_lets_the_other_way_through_and_ends_in_silence(stage: Stage) -> None:
    stage.connect()
    stage.world.network.cut("a", "b")

    stage.a.links[0].send(b"lost")
    stage.b.links[0].send(b"arrives")
    stage.world.run(SECOND)
    assert stage.a.notes == ["opened 2", "arrives"]
    stage.world.run(20 * SECOND)

    assert stage.b.notes == ["opened 1", "SILENT"]
    assert stage.a.notes == ["opened 2", "arrives", "ENDED"]


def test_a_cut_that_is_repaired_in_time_keeps_the_link(stage: Stage) -> None:
    stage.connect()
    stage.world.network.cut("a", "b")
    stage.world.run(SECOND)
    stage.world.network.heal("a", "b")

    stage.world.run(20 * SECOND)
    stage.a.links[0].send(b"through again")
    stage.world.run(SECOND)

    assert stage.b.notes == ["opened 1", "through again"]


def test_loss_duplicates_and_reordering_happen_at_their_rates(stage: Stage) -> None:
    stage.connect()
    stage.world.network.network_faults = NetworkFaults(loss=0.1, duplicate=0.1, reorder=0.1)

    for number in range(2000):
        stage.a.links[0].send(b"%d" % number)
    stage.world.run(SECOND)

    arrived = [int(note) for note in stage.b.notes[1:]]
    lost = 2000 - len(set(arrived))
    doubled = len(arrived) - len(set(arrived))
    assert 100 < lost < 300
    assert 100 < doubled < 300
    assert arrived != sorted(arrived)


def test_a_link_holds_only_so_many_bytes(stage: Stage) -> None:
    stage.connect()
    taken = 0

    while stage.a.links[0].send(b"x" * 100_000):
        taken += 1
    stage.world.run(SECOND)

    assert taken == 11
    assert stage.a.notes == ["opened 2", "drained"]


def test_a_paused_link_holds_frames_back(stage: Stage) -> None:
    stage.connect()
    stage.b.links[0].pause()
    stage.a.links[0].send(b"1")
    stage.a.links[0].send(b"2")
    stage.world.run(SECOND)
    held_back = list(stage.b.notes)

    stage.b.links[0].resume()
    stage.a.links[0].send(b"3")
    stage.world.run(SECOND)

    assert held_back == ["opened 1"]
    assert stage.b.notes == ["opened 1", "1", "2", "3"]


def test_a_frame_that_arrives_during_a_resume_does_not_overtake_those_that_waited() -> None:
    stage = Stage()
    stage.connect()
    link = stage.b.links[0]
    assert isinstance(link, SimulatedLink)
    link.pause()
    stage.a.links[0].send(b"waited")
    stage.world.run(SECOND)

    link.resume()
    link.arrive(b"arrives now")
    stage.world.run(SECOND)

    assert stage.b.notes == ["opened 1", "waited", "arrives now"]


def test_a_paused_node_reads_what_arrived_before_what_is_overdue(stage: Stage) -> None:
    stage.connect()
    stage.b.after(50, "timeout")
    stage.world.nodes["b"].pause()
    stage.world.run(SECOND)
    stage.a.links[0].send(b"heartbeat")
    stage.world.run(SECOND)

    stage.world.nodes["b"].resume()
    stage.world.run(SECOND)

    assert stage.b.notes == ["opened 1", "heartbeat", "timeout"]


@pytest.mark.parametrize("channels", [("peer", "client"), ("client", "peer")])
def test_a_node_that_stood_still_reads_each_socket_in_order_and_the_sockets_in_any_order(
    channels: tuple[str, str],
) -> None:
    first_read: set[str] = set()
    for seed in range(8):
        scheduler = Scheduler()
        life = Incarnation("n", scheduler, Trace(), World(seed).random("life"), lambda _: None)
        read: list[tuple[str, int]] = []

        life.pause()
        life.deliver(TIMER, 0, read.append, ("timer", 0))
        for number in range(3):
            for name in channels:
                life.deliver_on(name, "bytes", number, read.append, (name, number))
        life.resume()
        scheduler.run(SECOND)

        assert [number for name, number in read if name == "peer"] == [0, 1, 2]
        assert [number for name, number in read if name == "client"] == [0, 1, 2]
        assert read[-1] == ("timer", 0)
        first_read.add(read[0][0])

    assert first_read == {"client", "peer"}


def test_a_killed_node_leaves_its_callbacks_behind_and_keeps_its_page_cache(stage: Stage) -> None:
    first = stage.b
    first.disk.open("f", create=True).append(b"written")
    first.after(10, "from a former life")

    stage.world.nodes["b"].kill()
    stage.world.start_all()
    stage.world.run(SECOND)

    assert first.notes == []
    assert stage.b is not first
    assert stage.b.disk.size("f") == 7


def test_a_power_cut_takes_what_was_not_synced(stage: Stage) -> None:
    file = stage.b.disk.open("f", create=True)
    stage.b.disk.sync_directory("")
    file.append(b"synced")
    outcomes: list[OSError | None] = []
    stage.b.runtime.sync.sync([file], outcomes.append)
    told_inside = list(outcomes)
    stage.world.run(SECOND)
    file.append(b"x" * 10_000)

    stage.world.nodes["b"].cut_power()
    stage.world.start_all()

    assert told_inside == []
    assert outcomes == [None]
    assert stage.b.disk.open("f").pread(0, 6) == b"synced"


def test_a_failed_sync_is_reported_with_its_number(stage: Stage) -> None:
    outcomes: list[OSError | None] = []
    stage.world.nodes["b"].fail_disk(FailureRule("sync", times=100))
    file = stage.b.disk.open("f", create=True)

    for _ in range(10):
        stage.b.runtime.sync.sync([file], outcomes.append)
    stage.world.run(SECOND)

    assert [error.errno for error in outcomes if error is not None] == [5] * 10


def test_executor_jobs_take_time_and_their_failure_is_their_owners(stage: Stage) -> None:
    results: list[int] = []
    failures: list[Exception] = []
    spawn = stage.b.runtime.spawn

    spawn.spawn(lambda: 42, results.append, failures.append, ExecutorKind.WORKER)
    spawn.spawn(lambda: 1 // 0, results.append, failures.append, ExecutorKind.DISK)
    spawn.spawn(lambda: 43, results.append, failures.append, ExecutorKind.DISK).cancel()
    told_inside = list(results)
    stage.world.run(SECOND)

    assert told_inside == []
    assert results == [42]
    assert isinstance(failures[0], ZeroDivisionError)


def test_a_storage_error_ends_a_node_and_a_bug_ends_the_run(stage: Stage) -> None:
    def raise_it(error: Exception) -> None:
        raise error

    stage.world.nodes["a"].fail_disk(FailureRule("sync"))
    stage.a.runtime.timers.soon(lambda: raise_it(StorageError("disk is gone")))
    stage.b.runtime.timers.soon(lambda: raise_it(AssertionError("impossible")))
    stage.world.run(SECOND)
    stage.world.start_all()

    assert stage.world.nodes["a"].is_up
    assert not stage.world.nodes["b"].is_up
    assert stage.world.failures == ["b died of AssertionError: impossible"]


def test_a_storage_error_that_no_fault_explains_ends_the_run(stage: Stage) -> None:
    def raise_it() -> None:
        raise StorageError("disk is gone")

    stage.a.runtime.timers.soon(raise_it)
    stage.world.damage("b", "logs/t/0/partition.metadata")
    stage.b.runtime.timers.soon(raise_it)
    stage.world.run(SECOND)

    assert stage.world.failures == ["a died of StorageError: disk is gone"]


def test_a_power_cut_can_strike_between_two_writes_of_one_callback(stage: Stage) -> None:
    def write() -> None:
        file = stage.b.disk.open("f", create=True)
        stage.b.notes.append("before")
        file.append(b"1")
        stage.b.notes.append("after")

    stage.world.nodes["b"].cut_power_at(2)
    stage.b.runtime.timers.soon(write)
    stage.world.run(SECOND)

    assert stage.b.notes == ["before"]
    assert not stage.world.nodes["b"].is_up
    assert stage.world.failures == []


def test_a_stopped_node_winds_down_first(stage: Stage) -> None:
    stage.world.nodes["b"].stop()

    assert stage.b.notes == ["stopping"]
    assert not stage.world.nodes["b"].is_up


def test_a_flipped_byte_excuses_a_directory_until_it_is_written_anew(stage: Stage) -> None:
    for directory in ("logs", "logs/t", "logs/t/0"):
        stage.a.disk.make_directory(directory)
    file = stage.a.disk.open("logs/t/0/1.log", create=True)
    file.append(b"abc")
    stage.world.flips["a"] = [FlippedByte("logs/t/0/1.log", 1, b"x")]
    assert not stage.world.is_rotten("a", "logs/t/0")

    file.pwrite(1, b"x")
    assert stage.world.is_rotten("a", "logs/t/0")
    assert not stage.world.is_rotten("a", "logs/t/1")
    assert not stage.world.is_rotten("b", "logs/t/0")

    file.pwrite(1, b"b")
    assert not stage.world.is_rotten("a", "logs/t/0")


def test_a_directory_that_is_removed_while_it_is_synced_is_no_failure(stage: Stage) -> None:
    class Names:
        path = "d"

        def fileno(self) -> int:
            return stage.a.disk.directory_fileno(self.path)

        def sync(self) -> None:
            stage.a.disk.sync_directory(self.path)

    errors: list[OSError | None] = []
    for _ in range(8):
        stage.a.disk.make_directory("d")
        stage.a.runtime.sync.sync([Names()], errors.append)
        stage.a.disk.remove_tree("d")
        stage.world.run(SECOND)

    assert errors == [None] * 8
