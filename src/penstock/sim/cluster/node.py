"""A whole node on a simulated machine: what production runs, with a probe for the checkers."""

import enum
import random
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, assert_never

from penstock.broker.partitions import FsyncMode, LeaderPartition
from penstock.broker.partitions.log_scrubber import ScrubMetrics
from penstock.core.metadata import ConfigResourceType, MetadataImage
from penstock.core.metadata.access import CONSUMER_BYTE_RATE, USER, AclBinding, ScramMechanism, entity_key
from penstock.core.model import LeaderEpoch, NodeId, PartitionIndex, TopicName, TopicPartition
from penstock.core.raft import HardState, Member, Raft
from penstock.node import Node, NodeOptions, NodeStorage
from penstock.node.node import KAFKA, PEER, ReservedAddresses
from penstock.node.services import NodeServices
from penstock.runtime import Address, Runtime
from penstock.runtime.tcp import Listen
from penstock.security.callers import CallerCredentials, Identified
from penstock.server.kafka.backend import Backend
from penstock.sim.checkers.access import AccessView
from penstock.sim.checkers.freshness import KnownState
from penstock.sim.cluster.journal import Journal, Place
from penstock.sim.node import SimulatedNode
from penstock.sim.tcp import SimulatedTcp
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.log import PartitionLog
from penstock.storage.sealing import KeyVault, MasterKeys
from penstock.storage.sealing.sealed_batch import SECRET_BYTES

SETTING = "max.message.bytes"
MINIMUM = "min.insync.replicas"
FLUSH = "flush.messages"


class RegisterKind(enum.Enum):
    """What of a topic clients change."""

    EXISTS = "exists"
    PARTITIONS = "partitions"
    SETTING = "setting"
    MINIMUM = "minimum"
    FLUSH = "flush"


class Register(NamedTuple):
    """One thing that clients change and look at."""

    kind: RegisterKind
    topic: str

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.topic}"


class RuleRegister(NamedTuple):
    """Whether there is an access rule."""

    rule: AclBinding


class PasswordRegister(NamedTuple):
    """What is kept of a user's password."""

    user: str
    mechanism: ScramMechanism


class ApiKeyRegister(NamedTuple):
    """Whether there is an API key."""

    id: str


class QuotaRegister(NamedTuple):
    """How fast a user may read."""

    user: str


class SimulatedBroker(Node):
    """A node as `node` composes it. An error that nobody foresaw ends it, so that the run fails."""

    def _report(self, error: Exception) -> None:
        def end() -> None:
            raise error

        self._runtime.timers.soon(end)

    @property
    def protocol_errors(self) -> int:
        """How many connections were closed because their bytes broke the protocol."""
        return int(self._metrics.protocol_errors.of().count)

    def identify(self, credentials: CallerCredentials, host: str, done: Identified) -> None:
        """What the node does for its gateway: find out who a caller is."""
        self._security._callers.identify(credentials, host, done)


class Probe(Protocol):
    """Looks into all nodes when one of them has promised something."""

    def metadata_committed(self, node: "ClusterNode", version: int, image: MetadataImage) -> None: ...

    def acknowledged(self, place: Place, key: str, end: int) -> None: ...

    def deleted(self, place: Place, start: int) -> None: ...

    def look(self, place: Place) -> None: ...

    def has_lost_votes(self, node: "ClusterNode") -> bool: ...

    def has_new_disk(self, node: "ClusterNode") -> bool: ...

    def started(self) -> None: ...


class MakeProcess(Protocol):
    """Composes a node."""

    def __call__(
        self,
        runtime: Runtime,
        storage: NodeStorage,
        options: NodeOptions,
        reserved: ReservedAddresses,
        ready: Callable[[Node], None],
        listen: Listen,
    ) -> SimulatedBroker: ...


class _Addresses:
    """Addresses as they are configured: on a simulated machine nobody else has taken them."""

    def __init__(self, options: NodeOptions) -> None:
        self._known = {f"{KAFKA} {listener.name}": listener.bind for listener in options.listeners}
        if options.peer is not None:
            self._known[PEER] = options.peer

    def __getitem__(self, name: str) -> Address:
        return self._known[name]

    def close(self) -> None:
        """Nothing is reserved."""


class ClusterNode:
    """One node of a cluster, across its incarnations; the checkers see what it sends to clients."""

    def __init__(
        self,
        options: NodeOptions,
        journal: Journal,
        tcp: SimulatedTcp,
        make: MakeProcess = SimulatedBroker,
        keys: "SimulatedKeys | None" = None,
    ) -> None:
        self.options = options
        # Without them it does not encrypt.
        self.keys = keys
        self.machine: SimulatedNode
        self.probe: Probe
        self._journal = journal
        self._tcp = tcp
        self._make = make
        self._processes: list[SimulatedBroker] = []
        self._epochs: dict[str, LeaderEpoch] = {}
        self._shown = -1
        # What its metadata have said of users, across its incarnations, and by which image it said so last.
        self._access: list[AccessView] = []
        self._access_image: MetadataImage | None = None

    @property
    def node_id(self) -> NodeId:
        return self.options.node_id

    @property
    def address(self) -> Address:
        """Where clients reach it."""
        return self.options.listeners[0].bind

    @property
    def process(self) -> SimulatedBroker | None:
        return self._processes[-1] if self.machine.is_up and self._processes else None

    @property
    def backstage(self) -> NodeServices | None:
        process = self.process
        return None if process is None else process.backstage

    @property
    def raft(self) -> Raft | None:
        """Its member of the quorum, while the node is up and takes part."""
        backstage = self.backstage
        return backstage.quorum.raft if backstage is not None and backstage.quorum._is_started else None

    @property
    def last_raft(self) -> Raft | None:
        """The newest member of the quorum that ran here, also if the node is down."""
        quorums = (process.backstage.quorum for process in reversed(self._processes))
        return next((quorum.raft for quorum in quorums if quorum._is_started), None)

    @property
    def member(self) -> Member | None:
        """Who it is in the quorum."""
        return None if self.backstage is None else self.backstage.member.me

    @property
    def backend(self) -> Backend | None:
        """The services behind the listener, while the node is up and ready for clients."""
        process = self.process
        return process.backend if process is not None and process.is_ready else None

    def durable_end(self, place: Place) -> int | None:
        """Up to where its log of a partition is durable; before it is ready again, or if it is down, as then.

        What was synced then is synced still: a log whose first sync after a start failed does not know of it,
        nor does one whose process ended before it was ready.
        """
        is_synced = self.options.fsync is FsyncMode.EVERY
        durable: int | None = None
        end: int | None = None
        for process in reversed(self._processes):
            partitions = process.backstage.partitions
            replica = partitions.find_log(*place) if partitions.are_synced or not is_synced else None
            if replica is None:
                continue
            log = replica.log
            # Without syncs no power is cut, and what was appended is there after a kill.
            position = int(log.synced if is_synced else log.end)
            # Nothing that was cut off since counts.
            end = int(log.end) if end is None else min(end, int(log.end))
            durable = max(durable or 0, min(position, end))
            if log.stopped is None and process.is_ready:
                break
        return durable

    @property
    def protocol_errors(self) -> int:
        """In all its incarnations."""
        return sum(process.protocol_errors for process in self._processes)

    def logs(self) -> Iterator[PartitionLog]:
        """Every log of every incarnation."""
        for process in self._processes:
            yield from (replica.log for replica in process.backstage.partitions)

    def scrubs(self) -> Iterator[ScrubMetrics]:
        """What every incarnation has scrubbed."""
        for process in self._processes:
            yield process.backstage.partitions.scrubber.metrics

    def __call__(self, runtime: Runtime, disk: Disk) -> SimulatedBroker:
        """Begin an incarnation; what a simulated machine runs."""
        life = self.machine.incarnation
        assert life is not None
        self._shown = -1
        directory = DataDirectory.open(disk, self.machine.identity.directory_id)
        # A process has the keys in memory that were there when it began.
        vault = None if self.keys is None else self.keys.vault()
        directory.unlock(vault)
        storage = NodeStorage(disk, disk, directory, vault)
        listen = partial(self._tcp.listen, life)
        process = self._make(
            runtime, storage, self.options, _Addresses(self.options), lambda _: self._ready(process), listen
        )
        self._processes.append(process)
        controller = process.backstage.controller
        controller.add_task(LeaderProbe(process.backstage, self._journal))
        if self.options.security.enabled:
            controller.subscribe(self._note_access)
        controller.subscribe(lambda image: self.probe.metadata_committed(self, controller.committed, image))
        before = self._hard_state
        if (raft := self.last_raft) is not None:
            log = raft._state.log
            self._journal.quorum.ended(raft._state.me, log.persisted, log.term_at)
        process.start()
        self._compare_hard_state(before)
        self.probe.started()
        return process

    @property
    def _hard_state(self) -> HardState | None:
        """That of the newest incarnation that took part in the quorum: durable, or nothing came of it."""
        quorums = [process.backstage.quorum for process in self._processes]
        started = [quorum for quorum in quorums if quorum._is_started]
        if not started or started[-1]._host.failure is not None:
            return None  # what a full disk did not take is forgotten at once
        return started[-1].raft._state.hard_state

    def _compare_hard_state(self, before: HardState | None) -> None:
        after, raft = self._hard_state, self._processes[-1].backstage.quorum
        if before is None or after is None or not raft._is_started:
            return
        # It fell in the middle of a write, or its files were damaged: then it must know that.
        is_lost = self.probe.has_lost_votes(self) and raft.raft.is_doubtful
        if not (is_lost or self.machine.has_failed or self.probe.has_new_disk(self)):
            self._journal.quorum.restarted(self._processes[-1].backstage.member.me, before, after)

    def _ready(self, process: SimulatedBroker) -> None:
        backend = process.backend
        assert backend is not None
        self._look_at_leaders(backend)
        backend.partitions.on_roles_change(lambda: self._look_at_leaders(backend))

    def _look_at_leaders(self, backend: Backend) -> None:
        """Report to the checkers what this node leads now, with the end of each log."""
        for partition in backend.partitions.led():
            key = key_of(partition)
            if partition.stopped is None and self._epochs.get(key) != partition.leader_epoch:
                self._epochs[key] = partition.leader_epoch
                self._journal.watermarks.led(key, partition.leader_epoch, self.node_id, partition.log.end)

    def _note_access(self, image: MetadataImage) -> None:
        before, self._access_image = self._access_image, image
        if before is None or any(
            getattr(before, each) is not getattr(image, each)
            for each in ("acls", "credentials", "api_keys", "quotas")
        ):
            self._access.append(AccessView.of(image))

    def access_mark(self) -> int:
        """A request is sent to it now: what its metadata say from here on may count for it."""
        if self.backstage is not None:
            self._note_access(self.backstage.controller.image)
        return max(len(self._access) - 1, 0)

    def access_views(self, mark: int) -> Sequence[AccessView]:
        """What its metadata have said since a mark."""
        if self.backstage is not None:
            self._note_access(self.backstage.controller.image)
        return self._access[mark:]

    def metadata_version(self) -> int:
        """How new its image is at the moment."""
        return int(self._fetch_server().controller.committed)

    def shows_metadata(self) -> None:
        """It writes a Metadata response: the image behind it must hold all that was acknowledged."""
        controller = self._fetch_server().controller
        version, image = int(controller.committed), controller.image
        if version > self._shown:
            self._shown = version
            content = (
                *(image.topics, image.brokers, image.configs, image.features),
                *(image.acls, image.credentials, image.api_keys, image.quotas),
            )
            life = f"{self.machine.name}/{self.machine.incarnations}"
            self._journal.metadata.showed(life, version, content, partial(value_in, image))

    def shows_partition(self, place: Place, told: int = -1) -> None:
        """It writes a response about a partition; its high watermark may be in it (`told`)."""
        partition = self._fetch_server().partitions.find(*place)
        if partition is not None:
            self._journal.watermarks.showed(
                key_of(partition),
                partition.leader_epoch,
                self.node_id,
                # A response may have waited for others, and be behind; it can never be ahead.
                max(told, partition.high_watermark),
            )

    def acknowledges(self, place: Place, end: int) -> None:
        """It acknowledges to a producer that all in-sync replicas have what is below `end`."""
        self.shows_partition(place)
        topic_id = self._fetch_server().controller.image.topic_id(place[0])
        name = TopicPartition(TopicName(place[0]), PartitionIndex(place[1]))
        key = f"{name} of {topic_id}"
        self._journal.watermarks.acknowledged(key, end)
        self.probe.acknowledged(place, key, end)

    def tells_end(self, place: Place, epoch: int, end: int) -> None:
        """It reports to a consumer, as the leader of an epoch, where the log ends."""
        partition = self._fetch_server().partitions.find(*place)
        if partition is not None:
            self._journal.watermarks.told_end(key_of(partition), epoch, self.node_id, end)

    def answers(self, place: Place, known: KnownState, end: int | None = None) -> int:
        """It writes a response to a question of a time at which clients knew `known`; returns its epoch."""
        partition = self._fetch_server().partitions.find(*place)
        if partition is None:
            return -1
        # A new leader's high watermark may be behind: until it has caught up, consumers wait. Compared with
        # what the response says, which may have been read a while ago.
        told = end if end is not None and end >= partition.isr.epoch_start else None
        # A leader that was moved while it is live answers until it hears of it: by then nothing has changed.
        was_moved = partition.leader_epoch < known.epoch and self._journal.is_live(self.node_id)
        epoch = known.epoch if was_moved else partition.leader_epoch
        self._journal.freshness.answered(place, known, self.node_id, epoch, told)
        return partition.leader_epoch

    def _fetch_server(self) -> Backend:
        backend = self._processes[-1].backend
        assert backend is not None, "only who is ready writes responses"
        return backend


class SimulatedKeys:
    """A key service whose keys follow from the seed; it outlives nodes and their disks, as a keyring does."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self._made = 0
        self._secrets: dict[str, bytes] = {}
        self._current = ""
        self.rotate(0)

    def vault(self) -> KeyVault:
        """What a process has that begins now."""
        return KeyVault(self, self.load(), self._luck.randbytes)

    def load(self) -> MasterKeys:
        return MasterKeys(dict(self._secrets), self._current)

    def rotate(self, now_ms: int) -> MasterKeys:  # noqa: ARG002 - as the port has it
        self._made += 1
        self._current = f"key-{self._made}"
        self._secrets[self._current] = self._luck.randbytes(SECRET_BYTES)
        return self.load()

    def keep(self, names: Container[str]) -> int:
        """Take away every other key, but for the current one; returns how many there were."""
        gone = [name for name in self._secrets if name != self._current and name not in names]
        for name in gone:
            del self._secrets[name]
        return len(gone)


class LeaderProbe:
    """Reports to the checkers when a node begins to lead the metadata quorum."""

    def __init__(self, backstage: NodeServices, journal: Journal) -> None:
        self._backstage = backstage
        self._journal = journal

    def on_leadership_gained(self) -> None:
        raft = self._backstage.quorum.raft
        log = raft._state.log
        self._journal.quorum.became_leader(
            self._backstage.member.me, raft.term, log.term_at, log.snapshot.index
        )

    def on_leadership_lost(self) -> None:
        """A follower names its leader."""


def key_of(partition: LeaderPartition) -> str:
    """A partition's name for checkers: topics of one name may follow each other."""
    return f"{partition.name} of {partition.topic_id}"


def value_in(image: MetadataImage, register: Hashable) -> Hashable:
    """What an image says of something that clients change."""
    match register:
        case RuleRegister():
            return register.rule in image.acls
        case PasswordRegister():
            credential = image.credentials.get((register.user, register.mechanism))
            return None if credential is None else credential.stored_key
        case ApiKeyRegister():
            return image.api_keys.get(register.id) is not None
        case QuotaRegister():
            return (image.quotas.get(entity_key(((USER, register.user),))) or {}).get(CONSUMER_BYTE_RATE)
        case _:
            assert isinstance(register, Register)
            return _topic_value(image, register)


def _topic_value(image: MetadataImage, register: Register) -> Hashable:
    topic = image.topic(register.topic)
    match register.kind:
        case RegisterKind.EXISTS:
            return topic is not None
        case RegisterKind.PARTITIONS:
            return 0 if topic is None else len(topic.partitions)
        case RegisterKind.SETTING:
            return image.config(ConfigResourceType.TOPIC, register.topic).get(SETTING)
        case RegisterKind.MINIMUM:
            return image.config(ConfigResourceType.TOPIC, register.topic).get(MINIMUM)
        case RegisterKind.FLUSH:
            return image.config(ConfigResourceType.TOPIC, register.topic).get(FLUSH)
        case _:
            assert_never(register.kind)
