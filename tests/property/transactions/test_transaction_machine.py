"""Whatever producers, drivers and time do: a transaction has one outcome, and the log says the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import ProducerEpoch, ProducerId
from penstock.core.transactions import (
    AddPartitions,
    BatchCommitted,
    BatchMember,
    CommitBatch,
    CompleteTransaction,
    EndTransaction,
    FindPrepared,
    InitProducer,
    PreparedTransaction,
    ProducerGranted,
    ProducerIdentity,
    TransactionCoordinator,
    TransactionOptions,
    TransactionState,
    TransactionStored,
)
from tests.unit.core.transactions.transaction_driver import TIMEOUT_MS, Driver, at

IDS = ("s#0", "s#1")
# Mostly who may; sometimes a zombie.
WHO = st.sampled_from([0, 0, 0, 0, 1, 2])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.sampled_from(IDS), st.booleans(), WHO),
        st.tuples(st.just("add"), st.sampled_from(IDS), WHO, st.integers(0, 1)),
        st.tuples(st.just("add"), st.sampled_from(IDS), WHO, st.integers(0, 1)),
        st.tuples(st.just("end"), st.sampled_from(IDS), WHO, st.booleans()),
        st.tuples(st.just("batch"), st.integers(0, 2), WHO),
        st.tuples(st.just("complete"), st.sampled_from(IDS)),
        st.tuples(st.just("complete"), st.sampled_from(IDS)),
        st.tuples(st.just("pass"), st.sampled_from([10, TIMEOUT_MS])),
        st.tuples(st.just("failover")),
    ),
    min_size=20,
    max_size=80,
)


class Run:
    """Producers that may be zombies: each step is taken by one of the last identities that were given out."""

    def __init__(self) -> None:
        self.driver = Driver(TransactionOptions(batches_per_sink_max=2))
        self.granted: dict[str, list[ProducerIdentity]] = {name: [] for name in IDS}
        self.outcomes: dict[tuple[str, int, int], bool] = {}
        self.seen = 0
        for name in IDS:
            self.take(("init", name, False, 0))

    def _submit(self, command: type[Any], **fields: Any) -> Any:
        """The last reply, if there is one yet: it may come later."""
        replies: list[Any] = []
        driver = self.driver
        driver._take(driver.machine.decide(command(on_reply=replies.append, **fields), driver.now))
        return replies[-1] if replies else None

    def _who(self, name: str, back: int) -> ProducerIdentity:
        known = self.granted[name]
        return known[-1 - back] if back < len(known) else ProducerIdentity(ProducerId(5), ProducerEpoch(0))

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("init", name, with_expected, back):
                expected = self._who(name, back) if with_expected else None
                fields = {"transactional_id": name, "timeout_ms": TIMEOUT_MS, "expected": expected}
                reply = self.driver.ask_with_id(InitProducer, **fields)
                self._note(name, reply)
            case ("add", name, back, index):
                who = self._who(name, back)
                self._submit(
                    AddPartitions,
                    transactional_id=name,
                    producer=who,
                    partitions=(at("t", index),),
                    client_version=2,
                )
            case ("end", name, back, commit):
                fields = {
                    "transactional_id": name,
                    "producer": self._who(name, back),
                    "is_commit": commit,
                    "client_version": 2,
                }
                self._note(name, self.driver.ask_with_id(EndTransaction, **fields))
            case ("batch", batch, back):
                members = tuple(BatchMember(name, *self._who(name, back)) for name in IDS)
                self._submit(CommitBatch, sink="s", batch=str(batch), members=members)
            case ("complete", name):
                found = self._submit(FindPrepared, transactional_id=name)
                assert isinstance(found, PreparedTransaction)
                if found.transaction is not None:
                    prepared = found.transaction
                    who = ProducerIdentity(prepared.producer_id, prepared.producer_epoch)
                    self._submit(CompleteTransaction, transactional_id=name, producer=who)
            case ("pass", int(duration_ms)):
                self.driver.pass_ms(duration_ms)
            case _:
                self.driver = self.driver.failover()
        self._check()

    def _note(self, name: str, reply: Any) -> None:
        if isinstance(reply, ProducerGranted):
            self.granted[name].append(reply.producer)

    def _check(self) -> None:
        """No outcome is taken back: what is prepared under an epoch stays so, for the same producer."""
        for fact in self.driver.log[self.seen :]:
            if isinstance(fact, TransactionStored) and fact.state.is_prepared:
                self._decided(fact, fact.state is TransactionState.PREPARE_COMMIT)
            elif isinstance(fact, BatchCommitted):
                for member in fact.members:
                    key = (member.transactional_id, member.producer_id, member.producer_epoch + 1)
                    assert self.outcomes.setdefault(key, True), fact
        self.seen = len(self.driver.log)

    def _decided(self, fact: TransactionStored, commit: bool) -> None:
        key = (fact.transactional_id, fact.producer_id, fact.producer_epoch)
        assert self.outcomes.setdefault(key, commit) == commit, fact


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_transaction_has_one_outcome_and_the_log_says_the_same(steps: list[tuple[Any, ...]]) -> None:
    run = Run()
    for step in steps:
        run.take(step)

    machine = run.driver.machine
    for facts in (run.driver.log, list(machine.snapshot())):
        rebuilt = TransactionCoordinator(TransactionOptions(batches_per_sink_max=2))
        for fact in facts:
            rebuilt.apply(fact)
        assert rebuilt.image == machine.image
        is_open = [known.state.is_open for known in rebuilt.image.transactions.values()]
        assert rebuilt.open_transactions == sum(is_open)
    assert machine.size() == len(list(machine.snapshot()))
