"""Clients of one group that do anything in any order, and what must hold whatever they do."""

from dataclasses import dataclass, field

from penstock.core.groups import (
    CommitResults,
    GroupCoordinator,
    GroupOptions,
    GroupState,
    JoinGroupResult,
    LeavingMember,
    MemberIdRequired,
    RebalanceCompleted,
    SyncGroupResult,
)
from penstock.core.model import ApiError, ErrorKind
from tests.property.groups.held import check_counts
from tests.unit.core.groups.group_driver import GROUP, Driver, position, protocols

OPTIONS = GroupOptions(
    initial_rebalance_delay_ms=1_000, group_members_max=5, new_member_join_timeout_ms=30_000
)
CLIENTS = 6
SESSION_MS = 10_000
REBALANCE_MS = 15_000
TOPICS = (("t",), ("t", "u"))
GONE = {
    ErrorKind.UNKNOWN_MEMBER,
    ErrorKind.FENCED_INSTANCE,
    ErrorKind.ILLEGAL_GENERATION,
    ErrorKind.REBALANCE_IN_PROGRESS,
    ErrorKind.GROUP_FULL,
}


@dataclass
class Client:
    """What one consumer process knows; every other one is a static member."""

    number: int
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    topics: int = 0
    join_ticket: int | None = None
    sync_ticket: int | None = None
    former: list[tuple[str, int]] = field(default_factory=list)

    def forget_membership(self) -> None:
        if self.member_id:
            self.former.append((self.member_id, self.generation))
        self.member_id, self.generation = "", -1
        self.join_ticket = self.sync_ticket = None


class World:
    """The driver, its clients, and a model of what they were guaranteed."""

    def __init__(self) -> None:
        self.driver = Driver(OPTIONS)
        self.clients = [Client(n, f"pod-{n}" if n % 2 else None) for n in range(CLIENTS)]
        self.committed = -1
        self.commits = 0
        self.completed = 0  # the last generation that was completed

    # What clients do.

    def join(self, client: Client) -> None:
        """Join, or join again, also when there is no reason to."""
        ticket = self.driver.join(
            client.member_id,
            instance_id=client.instance_id,
            client_id=f"c{client.number}",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=protocols("range", "sticky", topics=TOPICS[client.topics]),
            member_id_required=client.number != 0,
            can_skip_assignment=client.number != CLIENTS - 1,
        )
        client.join_ticket = ticket

    def react(self, client: Client) -> None:
        """Do what a well-behaved client does with the response it got, or what comes next."""
        if client.join_ticket is not None:
            self._react_to_join(client, client.join_ticket)
        elif client.sync_ticket is not None:
            self._react_to_sync(client, client.sync_ticket)
        elif client.member_id:
            self.heartbeat(client)
        else:
            self.join(client)

    def _react_to_join(self, client: Client, ticket: int) -> None:
        answer = self.driver.answers.get(ticket)
        if answer is None:
            return
        client.join_ticket = None
        match answer:
            case MemberIdRequired(member_id):
                client.member_id = member_id
                self.join(client)
            case JoinGroupResult():
                client.member_id, client.generation = answer.member_id, answer.generation
                self._sync(client, answer)
            case ApiError(kind):
                assert kind in GONE
                if kind is not ErrorKind.REBALANCE_IN_PROGRESS:
                    client.forget_membership()
            case _:
                raise AssertionError(answer)

    def _sync(self, client: Client, answer: JoinGroupResult) -> None:
        assignments = {}
        if answer.leader == answer.member_id and not answer.skip_assignment:
            names = {m.member_id: m.instance_id or m.member_id for m in answer.members}
            assignments = {id_: f"{answer.generation}:{name}".encode() for id_, name in names.items()}
        client.sync_ticket = self.driver.sync(
            client.member_id, client.generation, assignments, instance_id=client.instance_id
        )

    def _react_to_sync(self, client: Client, ticket: int) -> None:
        answer = self.driver.answers.get(ticket)
        if answer is None:
            return
        client.sync_ticket = None
        if isinstance(answer, SyncGroupResult):
            assert answer.assignment == self.assignment_of(
                client.member_id, client.instance_id, client.generation
            )
            return
        assert isinstance(answer, ApiError)
        assert answer.kind in GONE
        if answer.kind is ErrorKind.REBALANCE_IN_PROGRESS:
            self.join(client)
        else:
            client.forget_membership()

    def calm(self, client: Client) -> None:
        """Everybody behaves for a while, `client` included: most groups settle."""
        assert client in self.clients
        for _ in range(5):
            for each in self.clients:
                self.react(each)
            self.pass_time(1_000)

    def heartbeat(self, client: Client) -> None:
        answer = self.driver.heartbeat(client.member_id, client.generation, client.instance_id)
        if not isinstance(answer, ApiError):
            return
        assert answer.kind in GONE
        if answer.kind is ErrorKind.REBALANCE_IN_PROGRESS:
            self.join(client)
        else:
            client.forget_membership()

    def commit(self, client: Client) -> None:
        self.commits += 1
        answer = self.driver.commit(
            position(self.commits),
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
        )
        if isinstance(answer, CommitResults):
            self.committed = self.commits

    def leave(self, client: Client) -> None:
        self.driver.leave(LeavingMember(client.member_id, client.instance_id))
        client.forget_membership()

    def crash(self, client: Client) -> None:
        """The process is gone; its successor knows the instance id at most."""
        client.forget_membership()

    def change_topics(self, client: Client) -> None:
        client.topics = 1 - client.topics

    def haunt(self, client: Client) -> None:
        """A process that was given up wakes up and goes on as if nothing had happened."""
        alive = {c.member_id for c in self.clients}
        for member_id, generation in client.former[-2:]:
            if member_id in alive or self.is_member(member_id):
                continue
            before = self.driver.describe(), len(self.driver.facts)
            sync = self.driver.sync(
                member_id, generation, {member_id: b"stolen"}, instance_id=client.instance_id
            )
            commit = self.driver.commit(
                position(10**6),
                member_id=member_id,
                generation=max(generation, 0),
                instance_id=client.instance_id,
            )
            self.driver.heartbeat(member_id, generation, client.instance_id)
            self.driver.leave(LeavingMember(member_id, client.instance_id))
            assert isinstance(self.driver.answers[sync], ApiError)
            assert isinstance(commit, ApiError)
            assert (self.driver.describe(), len(self.driver.facts)) == before

    def is_member(self, member_id: str) -> bool:
        # An id that was given out and not joined with yet is not shown, but may be given back.
        return member_id in [m.member_id for m in self.driver.describe().members] or any(
            isinstance(answer, MemberIdRequired) and answer.member_id == member_id
            for answer in self.driver.answers.values()
        )

    def pass_time(self, ms: int) -> None:
        self.driver.advance(ms)

    def fail_over(self) -> None:
        """The coordinator moves: parked requests break off, settled groups go on."""
        before = self.driver.describe()
        self.driver = self.driver.failed_over()
        if before.state is GroupState.STABLE:
            assert self.driver.describe() == before
        stored = self.driver.coordinator.image.groups.get(GROUP)
        self.completed = stored.generation if stored is not None else 0
        for client in self.clients:
            client.join_ticket = client.sync_ticket = None

    # What must hold.

    def assignment_of(self, member_id: str, instance_id: str | None, generation: int) -> bytes:
        return f"{generation}:{instance_id or member_id}".encode()

    def check(self) -> None:
        self._check_replay()
        self._check_assignments()
        self._check_generations()
        assert self.driver.committed() == self.committed

    def _check_replay(self) -> None:
        rebuilt = GroupCoordinator(OPTIONS)
        for fact in self.driver.facts:
            rebuilt.apply(fact)
        assert rebuilt.image == self.driver.coordinator.image
        check_counts(self.driver.coordinator)

    def _check_assignments(self) -> None:
        described = self.driver.describe()
        if described.state is not GroupState.STABLE:
            return
        generation = self.driver.coordinator.image.groups[GROUP].generation
        for member in described.members:
            assert member.assignment == self.assignment_of(member.member_id, member.instance_id, generation)

    def _check_generations(self) -> None:
        for event in self.driver.events:
            if isinstance(event, RebalanceCompleted):
                assert event.generation > self.completed
                self.completed = event.generation
        self.driver.events.clear()

    def check_every_request_is_answered(self) -> None:
        """Everybody falls silent; in the end no request is left waiting and nobody is in the group."""
        self.driver.advance(5 * (SESSION_MS + REBALANCE_MS + OPTIONS.new_member_join_timeout_ms))
        assert sorted(self.driver.answers) == list(range(1, self.driver.tickets + 1))
        assert self.driver.state() in {GroupState.EMPTY, GroupState.DEAD}
