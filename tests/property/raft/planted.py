"""Members that are wrong in one way each. The checkers must notice every one of them."""

from typing import Any

from msgspec.structs import replace

from penstock.core.model import ApiError, ErrorKind, Instant
from penstock.core.raft import (
    BLANK_BALLOT,
    CommandResult,
    Effect,
    Event,
    Index,
    MessageReceived,
    PersistHardState,
    Raft,
    ReadIndex,
    RequestRead,
)
from penstock.core.raft.messages import AppendRequest, RaftMessage, VoteRequest, VoteResponse
from penstock.core.raft.progress import ProgressTracker
from penstock.core.raft.raft import Candidate, Follower, Leader
from penstock.core.raft.state import RaftState
from penstock.core.raft.types import Member


class VotesWithoutSyncing(Raft):
    """Its hard state is gone after a power cut."""

    def step(self, event: Event, now: Instant) -> list[Effect]:
        return [effect for effect in super().step(event, now) if not isinstance(effect, PersistHardState)]


class PersistsTheBallotLast(Raft):
    """Promises first, and takes note when everything else is done."""

    def step(self, event: Event, now: Instant) -> list[Effect]:
        return sorted(super().step(event, now), key=lambda effect: isinstance(effect, PersistHardState))


class VotesForEverybody(Raft):
    """Forgets that it has voted in this term."""

    def _vote(self, candidate: Member, request: VoteRequest) -> None:
        ballot = self._state.hard_state
        if request.term == ballot.term and not request.is_pre_vote:
            self._state.hard_state = ballot._replace(voted_for=None)
        super()._vote(candidate, request)


class VotesForShorterLogs(Raft):
    """Does not compare logs before it votes."""

    def _vote(self, candidate: Member, request: VoteRequest) -> None:
        longest = VoteRequest(
            request.term, Index(1 << 40), self._state.term, request.is_pre_vote, request.is_transfer
        )
        super()._vote(candidate, longest)


class KnowsMembersByNumberOnly(Raft):
    """Takes a node that lost its directory for the one it was, and so does that node itself."""

    def step(self, event: Event, now: Instant) -> list[Effect]:
        if isinstance(event, MessageReceived):
            number, members = event.sender.node_id, self.configuration.members
            sender = next((member for member in members if member.node_id == number), event.sender)
            event = MessageReceived(sender, self._state.me, event.message)
        return super().step(event, now)


class CountsOldTerms(Leader):
    def _countable(self, index: Index) -> bool:
        return True


class CommitsEarlierTermsByCounting(Raft):
    """Takes an entry of an earlier term for final because a majority has it."""

    leader_type = CountsOldTerms


class CountsItsCache(ProgressTracker):
    def own_match(self) -> Index:
        return self._state.log.last


class LeaderWithoutDisk(Leader):
    replication_type = CountsItsCache


class CountsItsOwnUnsyncedEntries(Raft):
    """Counts itself before its disk has the entries."""

    leader_type = LeaderWithoutDisk


class AnswersFromCache(Follower):
    @property
    def _match(self) -> Index:
        return self._verified

    def _append(self, leader: Member, request: AppendRequest) -> None:
        super()._append(leader, request)
        if self._is_answer_due:
            self._answer(leader)


class AnswersBeforeTheSync(Raft):
    """Claims entries that its disk does not have yet."""

    follower_type = AnswersFromCache


class CutsWithoutConflict(Follower):
    def _append(self, leader: Member, request: AppendRequest) -> None:
        super()._append(leader, request)
        end = request.previous_index + len(request.entries)
        log = self._state.log
        if request.entries and self._state.commit < end < log.last and not log._fresh:
            self._state.append(request.entries[-1:])
            self._verified = Index(end)


class TruncatesOnEveryAppend(Raft):
    """A late duplicate takes entries away that came after it and were acknowledged."""

    follower_type = CutsWithoutConflict


class ReadsAtOnce(Leader):
    def _request_read(self, command: RequestRead) -> None:
        self._state.effects.append(CommandResult(command.ticket, ReadIndex(self._state.commit)))


class ReadsWithoutAMajority(Raft):
    """A leader that was deposed serves reads."""

    leader_type = ReadsAtOnce


class ReadsBeforeItsFirstCommit(Leader):
    def _request_read(self, command: RequestRead) -> None:
        self._reads.ask(command.ticket, self._replication.round + 1)
        self._confirm_reads()


class ReadsBeforeItsTermIsEstablished(Raft):
    """A new leader does not know yet what was committed before it, and serves reads all the same."""

    leader_type = ReadsBeforeItsFirstCommit


class ReadsWithTheRoundUnderway(Leader):
    def _request_read(self, command: RequestRead) -> None:
        if self._is_established:
            self._reads.ask(command.ticket, max(1, self._replication.round - 2))
            self._confirm_reads()


class ReadsByAnOldRound(Raft):
    """Takes responses to heartbeats from before the read as proof."""

    leader_type = ReadsWithTheRoundUnderway


class ChangesAtOnce(Leader):
    def _check_any_change(self) -> ApiError | None:
        if self._state.commit < self._state.configuration_index:
            return ApiError(ErrorKind.QUORUM_BUSY)
        return None


class ChangesMembersBeforeItsFirstCommit(Raft):
    """Changes members before an entry of its own term is committed."""

    leader_type = ChangesAtOnce


class ChangesTogether(Leader):
    def _check_any_change(self) -> ApiError | None:
        return None


class ChangesSeveralMembersTogether(Raft):
    """Begins a change of members while another is underway."""

    leader_type = ChangesTogether


class NeverLeased(Follower):
    def is_leased(self) -> bool:
        return False


class DeposesAWorkingLeader(Raft):
    """Would vote for anybody who asks, though it hears a leader."""

    follower_type = NeverLeased


class IsNeverInDoubt(Raft):
    """Votes with a log that may lack what it acknowledged, as if it were whole."""

    def step(self, event: Event, now: Instant) -> list[Effect]:
        self._state.hard_state = self._state.hard_state._replace(doubt=None)
        return super().step(event, now)


class DoubtsUntilTheNextCommit(RaftState):
    def settle_doubt(self) -> None:
        if self.doubt is not None and self.term >= self.doubt and self.log.term_at(self.commit) == self.term:
            self.hard_state = self.hard_state._replace(doubt=None)
            self.effects.append(PersistHardState(self.hard_state))


class TrustsTheLeaderOfTheDoubtfulTerm(Raft):
    """Ends its doubt when it has what the leader calls committed, though that may count what it lost."""

    state_type = DoubtsUntilTheNextCommit


class CountsAllVotes(Candidate):
    def received(self, sender: Member, message: RaftMessage) -> None:
        if isinstance(message, VoteResponse):
            message = replace(message, is_doubtful=False)
        super().received(sender, message)


class CountsDoubtfulVotes(Raft):
    """Takes a majority for enough, whatever the voters think of their logs."""

    candidate_type = CountsAllVotes


class VotesAgainWithoutItsHardState(Raft):
    """Takes a lost hard state for a blank one."""

    def __init__(self, *arguments: Any) -> None:
        member, view, recovered, *rest = arguments
        super().__init__(
            member, view, replace(recovered, hard_state=recovered.hard_state or BLANK_BALLOT), *rest
        )
