"""What batch commit guarantees, checked against what the drivers of sinks asked and were told.

A batch, the key (sink, batch), is attempted once or several times: each attempt lists transactions, whose
tasks wrote anew, or the same ones again. At the end, from the transactions whose records are committed:

    torn batch        some transactions of an attempt are committed, and others are not
    repeated batch    more is committed under one key than one attempt lists
    lost batch        a driver was told that the batch is committed, and nothing of it is
    other attempt     a driver was told that its attempt is committed, and another one is
    refused batch     a driver was told that nothing was committed, and its attempt is
    forgotten batch   a driver is told that the batch is committed, and another later that it is not

What becomes of each transaction, and what readers see of it, is checked as for any other
(`checkers.transactions`): it is all of it or nothing, it ends, and nothing is read before.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.sim.checkers.transactions import TransactionHistory


@dataclass(slots=True, eq=False)
class BatchAttempt:
    """The transactions that a driver lists under a key."""

    sink: str
    batch: str
    members: Sequence[TransactionHistory]
    is_asked: bool = False
    # Whether a response said that this request has committed it, or that it was refused.
    is_told: bool = False
    is_refused: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(history.name for history in self.members)


class BatchRequest(NamedTuple):
    """A request on its way, and whether a driver had been told before that its batch is committed."""

    attempt: BatchAttempt
    was_done: bool


@dataclass(slots=True)
class BatchCommitChecker:
    """Batches and their attempts, in the order in which drivers asked for them."""

    anomalies: list[str] = field(default_factory=list)
    attempts: dict[tuple[str, str], list[BatchAttempt]] = field(default_factory=dict)
    committed: int = 0
    repeated: int = 0
    refused: int = 0
    _done: dict[tuple[str, str], None] = field(default_factory=dict)

    def asking(self, attempt: BatchAttempt) -> BatchRequest:
        """A driver is about to send the request, or to repeat it."""
        key = (attempt.sink, attempt.batch)
        if not attempt.is_asked:
            attempt.is_asked = True
            self.attempts.setdefault(key, []).append(attempt)
        return BatchRequest(attempt, key in self._done)

    def answered_done(self, request: BatchRequest, *, is_repeat: bool) -> None:
        """A node writes the response that the batch is committed, by this request or before."""
        attempt = request.attempt
        if is_repeat:
            self.repeated += 1
        else:
            attempt.is_told = True
            self.committed += 1
            if request.was_done:
                self.anomalies.append(f"repeated batch: {attempt.batch} of {attempt.sink} is done once more")
        self._done[attempt.sink, attempt.batch] = None

    def answered_refused(self, request: BatchRequest) -> None:
        """A node writes the response that nothing is committed, as a transaction is not as it is listed."""
        attempt = request.attempt
        attempt.is_refused = True
        self.refused += 1
        if request.was_done:
            self.anomalies.append(f"forgotten batch: {attempt.batch} of {attempt.sink} was done")

    def check(self, committed: Container[str]) -> Iterator[str]:
        """Every anomaly that the end shows; `committed` are the names of committed transactions."""
        for (sink, batch), attempts in self.attempts.items():
            for anomaly, detail in self._check_batch((sink, batch), attempts, committed):
                yield f"{anomaly}: {batch} of {sink} {detail}"

    def _check_batch(
        self, key: tuple[str, str], attempts: Sequence[BatchAttempt], committed: Container[str]
    ) -> Iterator[tuple[str, str]]:
        listed = {name: None for attempt in attempts for name in sorted(attempt.names)}
        found = frozenset(name for name in listed if name in committed)
        winners = [attempt for attempt in attempts if attempt.names == found]
        what = f"has committed {sorted(found)}"
        if not winners and not found:
            if key in self._done:
                yield "lost batch", "is done, and nothing of it is committed"
        elif not winners:
            is_more = any(attempt.names and attempt.names < found for attempt in attempts)
            yield ("repeated batch" if is_more else "torn batch"), what
        elif all(attempt.is_refused for attempt in winners) and found:
            yield "refused batch", what
        told = [attempt for attempt in attempts if attempt.is_told]
        if winners and any(attempt.names != found for attempt in told):
            yield "other attempt", f"{what}, and not {sorted(told[0].names)}"
