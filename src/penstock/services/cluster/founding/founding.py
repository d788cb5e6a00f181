"""A blank node asks the voters it was given who they are, until it knows what to do."""

from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId
from penstock.core.raft import Member
from penstock.observability import log as events
from penstock.runtime import Address, CloseReason, NodeIdentity, Runtime, Timer
from penstock.services.cluster.control.desk import ControlDesk
from penstock.services.cluster.control.messages import Answer, Introduction, Standing, Voter
from penstock.services.cluster.founding.outcomes import Found, Heard, JoinThem, NotFounded, judge
from penstock.services.peering import LaxWatcher, PeerHub

Decided: TypeAlias = Callable[[Found | JoinThem], None]
ROUND_MS = 100
ANSWER_MS = 1_000
REMINDER_NS = 5 * SECOND
# Quiet at first: nodes that are started together are there within this.
FIRST_REMINDER_NS = SECOND


def founds_alone(me: NodeId, voters: Sequence[Voter]) -> bool:
    """Whether nobody needs to be asked."""
    return all(voter.node_id == me for voter in voters)


class Founding(LaxWatcher):
    """Asks in rounds. All that counts is what was answered in one round, on links that are open."""

    def __init__(
        self, runtime: Runtime, hub: PeerHub, desk: ControlDesk, me: Member, voters: Sequence[Voter]
    ) -> None:
        self._runtime = runtime
        self._hub = hub
        self._desk = desk
        self._address: Address | None = None
        self._me = me
        self._voters = tuple(sorted(voters))
        self._others = [voter for voter in self._voters if voter.node_id != me.node_id]
        self._decided: Decided | None = None
        self._heard: dict[NodeId, Heard] = {}
        self._round = 0
        self._timer: Timer | None = None
        self._remind_at = Instant(0)

    def begin(self, address: Address | None, decided: Decided) -> None:
        """Ask until there is an answer; what makes no sense is raised."""
        self._address = address
        self._decided = decided
        self._remind_at = Instant(self._runtime.clock.now() + FIRST_REMINDER_NS)
        self._hub.watch(self)
        self._hub.when_stranger(self._met_stranger)
        self._next_round()

    def standing(self) -> Standing:
        """Who we are while we do not know yet."""
        return Standing(False, None, None, self._voters, self._known())

    def _known(self) -> dict[NodeId, UUID]:
        """The voters that we reach, and their directories; ourselves included."""
        known: dict[NodeId, UUID] = {}
        for voter in self._voters:
            identity = self._hub.identity_of(voter.node_id)
            if voter.node_id == self._me.node_id:
                known[voter.node_id] = self._me.directory_id
            elif identity is not None:
                known[voter.node_id] = identity.directory_id
        return known

    def _next_round(self) -> None:
        if self._decided is None:
            return
        self._round += 1
        self._heard.clear()
        question = Introduction(self._address, self._voters, self._known())
        for voter in self._others:
            self._ask(voter.node_id, question)
        self._remind()
        deadline = Instant(self._runtime.clock.now() + ROUND_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._next_round)

    def _ask(self, node: NodeId, question: Introduction) -> None:
        number, identity = self._round, self._hub.identity_of(node)
        if identity is None:
            return
        directory_id = identity.directory_id

        def answered(answer: Answer | None) -> None:
            if number == self._round and isinstance(answer, Standing):
                self._heard[node] = Heard(directory_id, answer)
                self._judge()

        self._desk.ask(node, question, ANSWER_MS, answered)

    def _judge(self) -> None:
        decided = self._decided
        outcome = judge(self._me, self._voters, self._heard)
        if outcome is None or decided is None:
            return
        self._decided = None
        if self._timer is not None:
            self._timer.cancel()
        decided(outcome)

    def _remind(self) -> None:
        now = self._runtime.clock.now()
        missing = [voter for voter in self._others if self._hub.identity_of(voter.node_id) is None]
        if now >= self._remind_at and missing:
            self._remind_at = Instant(now + REMINDER_NS)
            whom = ", ".join(f"{voter.node_id} at {voter.address}" for voter in missing)
            events.info("cluster.waiting_for_voters", voters=whom)

    def _met_stranger(self, node: NodeId, address: Address, identity: NodeIdentity) -> None:
        if self._decided is None:
            return
        if identity.node_id == self._me.node_id and identity.directory_id == self._me.directory_id:
            raise NotFounded(f"voter {node} is said to be at {address}, but that is this node itself")
        raise NotFounded(
            f"voter {node} is said to be at {address}, but node {identity.node_id} answers there"
        )

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        if self._decided is not None and ending is CloseReason.REJECTED:
            raise NotFounded(
                f"voter {node} turned this node away: its version of Penstock does not understand ours"
            )
