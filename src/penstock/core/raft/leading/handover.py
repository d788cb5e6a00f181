"""Lets another voter lead: it gets the whole log first, and is then told to campaign."""

from penstock.core.model import Instant
from penstock.core.raft.identity import Member
from penstock.core.raft.leading.replication import Replication
from penstock.core.raft.ledger import Ledger
from penstock.core.raft.messages import CampaignNow


class Handover:
    """A transfer of leadership. While it lasts nothing is proposed, so that the target can catch up."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._target: Member | None = None
        self.deadline: Instant | None = None

    @property
    def is_underway(self) -> bool:
        return self._target is not None

    def begin(self, target: Member) -> None:
        self._target = target
        self.deadline = Instant(self._ledger.now + self._ledger.options.election_ns)

    def time_passed(self) -> None:
        """A target that does not take over in time will not: we go on."""
        if self.deadline is not None and self._ledger.now >= self.deadline:
            self._target = self.deadline = None

    def nudge(self, replication: Replication) -> None:
        """Tell the target if it has everything. More than once does no harm: it may be lost."""
        if self._target is None:
            return
        peer = replication.of(self._target)
        if peer is None:
            self._target = self.deadline = None
        elif peer.match == self._ledger.log.last:
            self._ledger.send(self._target, CampaignNow(self._ledger.term))
