"""What outlives every node: what clients saw, and what the checkers make of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.sim.checkers.access import AccessChecker
from penstock.sim.checkers.batches import BatchCommitChecker
from penstock.sim.checkers.consumer_groups import ConsumerGroupChecker
from penstock.sim.checkers.eligibility import EligibilityChecker
from penstock.sim.checkers.freshness import FreshnessChecker
from penstock.sim.checkers.groups import GroupChecker
from penstock.sim.checkers.log import LogHistory
from penstock.sim.checkers.log_start import LogStartChecker
from penstock.sim.checkers.metadata import MetadataChecker
from penstock.sim.checkers.queues import QueueChecker, SettleAction, SettleOutcome
from penstock.sim.checkers.quorum import QuorumChecker
from penstock.sim.checkers.transactions import TransactionChecker
from penstock.sim.checkers.voters import VoterChecker
from penstock.sim.checkers.watermarks import WatermarkChecker
from penstock.sim.cluster.coverage import Coverage

Place = tuple[str, int]


@dataclass(slots=True)
class Journal:
    """The checkers of a run, and how many operations they have seen."""

    logs: dict[Place, LogHistory] = field(default_factory=dict)
    log_starts: LogStartChecker = field(default_factory=LogStartChecker)
    watermarks: WatermarkChecker = field(default_factory=WatermarkChecker)
    freshness: FreshnessChecker = field(default_factory=FreshnessChecker)
    groups: GroupChecker = field(default_factory=GroupChecker)
    consumer_groups: ConsumerGroupChecker = field(default_factory=ConsumerGroupChecker)
    transactions: TransactionChecker = field(default_factory=TransactionChecker)
    batches: BatchCommitChecker = field(default_factory=BatchCommitChecker)
    queues: QueueChecker = field(default_factory=QueueChecker)
    metadata: MetadataChecker = field(default_factory=MetadataChecker)
    access: AccessChecker = field(default_factory=AccessChecker)
    voters: VoterChecker = field(default_factory=VoterChecker)
    quorum: QuorumChecker = field(default_factory=QuorumChecker)
    eligibility: EligibilityChecker = field(default_factory=EligibilityChecker)
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[str] = field(default_factory=list)
    operations: int = 0
    # Master keys that nodes went on with, and old ones that were taken away.
    rotations: int = 0
    keys_taken: int = 0
    # Whether of every key only the newest record has to stay.
    is_compacted: bool = False
    # Whether the newest metadata takes a node for live. A leader that is moved while it is live may answer
    # until it hears of it; one that was fenced must not.
    is_live: Callable[[int], bool] = lambda _: False

    def log(self, topic: str, index: int) -> LogHistory:
        return self.logs.setdefault((topic, index), LogHistory(is_compacted=self.is_compacted))

    def visited(self) -> dict[str, int]:
        """What the run came across, by name."""
        self.coverage.add("group.commits", self.groups.commits)
        self.coverage.add("group.generations", self.groups.generations)
        self.coverage.add("consumer_group.commits", self.consumer_groups.commits)
        self.coverage.add("consumer_group.assignments", self.consumer_groups.assignments)
        self.coverage.add("consumer_group.revocations", self.consumer_groups.revocations)
        self.coverage.add("consumer_group.removals", self.consumer_groups.removals)
        self.coverage.add("transaction.committed", self.transactions.committed)
        self.coverage.add("transaction.aborted", self.transactions.aborted)
        self.coverage.add("transaction.fenced", self.transactions.fenced)
        self.coverage.add("transaction.write_cycles", self.transactions.write_cycles)
        self.coverage.add("batch.committed", self.batches.committed)
        self.coverage.add("batch.repeated", self.batches.repeated)
        self.coverage.add("batch.refused", self.batches.refused)
        self._add_queues()
        self._add_access()
        self.coverage.add("answers.checked", self.freshness.answers)
        self.coverage.add("quorum.elections", self.quorum.elections)
        self.coverage.add("quorum.voter_changes", self.voters.changes)
        self.coverage.add("master_keys.rotated", self.rotations)
        self.coverage.add("master_keys.taken_away", self.keys_taken)
        self.coverage.add("records.deleted", self.log_starts.deletions)
        return self.coverage.visited()

    def _add_queues(self) -> None:
        queues = self.queues
        self.coverage.add("queue.deliveries", queues.deliveries)
        self.coverage.add("queue.redeliveries", queues.redeliveries)
        self.coverage.add("queue.dead_letters", queues.dead_letters)
        self.coverage.add("queue.expired", queues.expired)
        self.coverage.add("queue.transactional_acks", queues.transactional_acks)
        self.coverage.add("queue.share_deliveries", queues.share_deliveries)
        self.coverage.add("queue.share_removals", queues.removals)
        self.coverage.add("queue.pauses", queues.pauses)
        self.coverage.add("queue.redriven", queues.redriven)
        for action in SettleAction:
            for outcome in (SettleOutcome.CONFIRMED, SettleOutcome.REFUSED):
                name = f"queue.{action.name.lower()}_{outcome.value}"
                self.coverage.add(name, queues.counts.get((action, outcome), 0))

    def _add_access(self) -> None:
        access = self.access
        self.coverage.add("access.served", access.served)
        self.coverage.add("access.denied", access.denied)
        self.coverage.add("access.delivered", access.delivered)
        self.coverage.add("access.overtaken", access.overtaken)
        self.coverage.add("access.logins", access.logins)
        self.coverage.add("access.refused_logins", access.refused_logins)
        self.coverage.add("access.throttled", access.throttled)
        self.coverage.add("access.changes", access.changes)

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged to producers."""
        return sum(len(history.acknowledged) for history in self.logs.values())

    def anomalies(self) -> Iterator[str]:
        """The anomalies so far, before the end is known."""
        yield from self.failures
        yield from self.watermarks.anomalies
        yield from self.log_starts.anomalies
        yield from self.freshness.anomalies
        yield from self.groups.anomalies
        yield from self.consumer_groups.anomalies
        yield from self.transactions.anomalies
        yield from self.batches.anomalies
        yield from self.queues.anomalies
        yield from self.metadata.anomalies
        yield from self.access.anomalies
        yield from self.quorum.anomalies
        yield from self.voters.anomalies
        yield from self.eligibility.anomalies

    @property
    def is_wrong(self) -> bool:
        return next(self.anomalies(), None) is not None
