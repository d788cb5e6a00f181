"""The newcomer's side of joining."""

from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId
from penstock.core.raft import EMPTY_CONFIGURATION, Configuration, Member
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.control.desk import ControlDesk
from penstock.services.cluster.control.messages import Admittance, Admitted, Answer, Elsewhere, Join
from penstock.services.cluster.founding.outcomes import NotFounded
from penstock.services.cluster.founding.wishes import write_wish
from penstock.storage.disk import Disk

AGAIN_MS = 100
ANSWER_MS = 2_000
REMINDER_NS = 5 * SECOND
RIVAL_NS = 4 * SECOND
# Longer than it takes a quorum to notice that its leader is gone.
NAMESAKE_NS = 5 * SECOND


class Joining:
    """Asks the leader to be let in, until the members that we know of include us as we wish.

    Who leads is not known before we get the log, so everybody we know is asked in turn, and
    whoever does not lead says who does.
    """

    def __init__(
        self, runtime: Runtime, disk: Disk, desk: ControlDesk, book: AddressBook, me: Member
    ) -> None:
        self._runtime = runtime
        self._disk = disk
        self._desk = desk
        self._book = book
        self._me = me
        self._wants_vote = False
        self._is_over = True
        self._turn = 0
        self._hint: NodeId | None = None
        self._timer: Timer | None = None
        self._remind_at = Instant(0)
        self._refused_at: Instant | None = None
        self._namesake_until: Instant | None = None
        self._configuration = EMPTY_CONFIGURATION

    def begin(self, *, wants_vote: bool) -> None:
        """Ask, unless we are what we want to be."""
        self._wants_vote = wants_vote
        self._remind_at = Instant(self._runtime.clock.now() + REMINDER_NS)
        self._is_over = False
        self.members_changed(self._configuration)
        if not self._is_over:
            self._ask()

    def members_changed(self, configuration: Configuration) -> None:
        self._configuration = configuration
        enough = configuration.voters if self._wants_vote else configuration.members
        if self._is_over or self._me not in enough:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._wants_vote:
            write_wish(self._disk, wants_vote=False)
        events.info("cluster.joined", voter=self._me in configuration.voters)

    def _ask(self) -> None:
        if self._is_over:
            return
        nodes = self._book.reachable()
        self._turn += 1
        node = self._hint if self._hint in nodes else nodes[self._turn % len(nodes)] if nodes else None
        self._hint = None
        if node is None or not self._desk.ask(node, Join(self._wants_vote), ANSWER_MS, self._answered):
            self._later()

    def _answered(self, answer: Answer | None) -> None:
        match answer:
            case Admitted(Admittance.REFUSED, detail):
                self._refused(detail)
            case Elsewhere(leader, _) if leader == self._me.node_id:
                self._met_namesake()
            case Elsewhere(leader, address) if leader is not None and address is not None:
                self._hint = leader
                self._book.heard_of(leader, address)
            case _:
                pass
        self._later()

    def _met_namesake(self) -> None:
        """Somebody else leads under our node id; until it was noticed, that may be one that is gone."""
        now = self._runtime.clock.now()
        if self._namesake_until is None:
            self._namesake_until = Instant(now + NAMESAKE_NS)
        elif now >= self._namesake_until:
            raise NotFounded(
                f"the cluster does not take this node: node {self._me.node_id} runs already, with another "
                "data directory, and leads the quorum"
            )

    def _refused(self, detail: str) -> None:
        """A rival may be one that has just ended and is not missed yet."""
        now = self._runtime.clock.now()
        if self._refused_at is None:
            self._refused_at = now
        elif now - self._refused_at >= RIVAL_NS:
            raise NotFounded(f"the cluster does not take this node: {detail}")

    def _later(self) -> None:
        now = self._runtime.clock.now()
        if now >= self._remind_at and not self._is_over:
            self._remind_at = Instant(now + REMINDER_NS)
            events.info("cluster.waiting_to_join", wants_vote=self._wants_vote)
        self._timer = self._runtime.timers.at(Instant(now + AGAIN_MS * MILLISECOND), self._ask)
