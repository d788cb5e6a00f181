"""A member of a group that consumes, transforms and produces in transactions.

Every transaction holds one output for each input it has consumed, and the offset behind them. Whoever is
given the partition next begins at the committed offset, and waits for a transaction that may still move it.
"""

from penstock.core.model import MILLISECOND
from penstock.sim.checkers.groups import CommitAttempt
from penstock.sim.checkers.transactions import InputRange
from penstock.sim.cluster.clients.client import ClusterNodes, VersionPolicy
from penstock.sim.cluster.clients.members import NAP_MS, SESSION_MS, SimulatedMember
from penstock.sim.cluster.clients.transactions import Refusal, TransactionClient
from penstock.sim.cluster.journal import Place

RECORDS_MAX = 60
COMMITS, CRASHES, STOPS, NAPS = 0.85, 0.02, 0.03, 0.06


class TransformingMember(SimulatedMember):
    """Reads the topic of all clients, and writes to partitions that only transactions write to."""

    requires_stable = True

    def __init__(
        self, nodes: ClusterNodes, host: str, group: str, places: list[Place], outputs: list[Place]
    ) -> None:
        super().__init__(nodes, host, group, places, policy=VersionPolicy.NEWEST)
        self._outputs = outputs
        self._transactions = TransactionClient(nodes, host)
        # How far the group has come for sure, where this member reads.
        self._done: dict[Place, int] = {}

    def _begin(self, *, forget: bool) -> None:
        self._transactions.abandon()
        self._done = {}
        super()._begin(forget=forget)

    def stop(self) -> None:
        super().stop()
        self._transactions.abandon()

    def _step(self) -> None:
        if self.now - self._heard_at > SESSION_MS * MILLISECOND:
            self._begin(forget=False)
            return
        for place, position in self._positions.items():
            self._done.setdefault(place, position)
        self.journal.groups.acts(self._group, self._generation, self.now, SESSION_MS * MILLISECOND)
        self._read(self.luck.choice(list(self._positions)))

    def _commit(self, place: Place) -> None:
        """There is nothing to be read where the group stands: the offset is committed alone."""
        self._consume(place, [], self._positions[place])

    def _consume(self, place: Place, records: list[tuple[int, bytes]], position: int) -> None:
        if len(records) > RECORDS_MAX:
            records = records[:RECORDS_MAX]
            position = records[-1][0] + 1
        if self._transactions.needs_init:
            self._transactions.init(self._now(lambda: self._transform(place, records, position)))
        else:
            self._transform(place, records, position)

    def _transform(self, place: Place, records: list[tuple[int, bytes]], end: int) -> None:
        """One output per input, then the offset, then the end."""
        client = self._transactions
        history = client.begin()
        history.inputs.append(InputRange(self._group, place, self._done[place], end))
        luck = self.luck.random()
        attempt = self.journal.groups.adding(self._group, place, self._generation, end)

        def sent(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._trouble(refusal)
            elif luck < CRASHES:
                self.close()
                self._begin(forget=True)
            else:
                client.send_offsets(
                    self._group, self._generation, self._member_id, {place: end}, self._now(added)
                )

        def added(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._trouble(refusal)
            elif luck < CRASHES + STOPS:
                # Nobody ends it but its timeout, or the next incarnation.
                self._begin(forget=False)
            elif luck < CRASHES + STOPS + NAPS:
                # Others have its partitions when it wakes up, and must have waited for this.
                self._asleep_until = self.now + NAP_MS * MILLISECOND
                self.after_ms(NAP_MS, self._now(self._end), place, attempt)
            else:
                self._end(place, attempt)

        values = client.values(max(len(records), 1))
        client.send(self.luck.choice(self._outputs), values, self._now(sent))

    def _end(self, place: Place, attempt: CommitAttempt) -> None:
        is_commit = self.luck.random() < COMMITS
        groups = self.journal.groups
        if is_commit:
            groups.ending(attempt)

        def ended(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._trouble(refusal)
                return
            if is_commit:
                groups.committed(attempt)
                self._done[place] = self._positions[place] = attempt.offset
            else:
                self._positions[place] = self._done[place]
            self._rest()

        self._transactions.end(self._now(ended), commit=is_commit)

    def _trouble(self, refusal: Refusal) -> None:
        """Another may have the partition, or the transaction is over: begin where the group stands."""
        if refusal is Refusal.FENCED:
            self._begin(forget=False)
            return
        # What is in the transaction shall not wait for its timeout.
        again = self._now(lambda _: self._begin(forget=False))
        self._transactions.end(again, commit=False)
