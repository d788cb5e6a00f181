"""Clients that read whole partitions by themselves, without a group."""

from dataclasses import dataclass
from functools import partial

from penstock.core.model import Refused, Why
from penstock.services.records import Position
from penstock.simulation.cluster.clients.client import Client, Nodes, is_retriable
from penstock.simulation.cluster.door import Door, Polled
from penstock.simulation.cluster.journal import Place
from penstock.simulation.values import values_of

WAIT_MS = 200
BACK_TO_START = 0.02
ASK_FOR_END = 0.1
ASK_NEW_LEADER = 0.5
# Fetches that come back with nothing at all are followed by a rest, so that they do not fill the run.
REST_MS = 20


@dataclass(slots=True)
class Reading:
    """How far a consumer is in one partition."""

    place: Place
    position: int = 0
    epoch: int = -1


class Consumer(Client):
    """Polls its partitions in turn, goes back to the start now and then, and asks for the end."""

    def __init__(self, nodes: Nodes, host: str, places: list[Place]) -> None:
        super().__init__(nodes, host)
        self._readings = [Reading(place) for place in places]
        self._stopped = False

    def start(self) -> None:
        for reading in self._readings:
            self.journal.log(*reading.place).sought(self.host)
            self._next(reading)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def _next(self, reading: Reading) -> None:
        if self._stopped:
            return
        leader = self.leader(reading.place)
        if leader is None:
            self._look_around(reading)
            return
        luck = self.luck.random()
        # A new leader is asked for the end at once: it must not say less than the old one did.
        is_new, reading.epoch = leader.epoch != reading.epoch, leader.epoch
        if luck < (ASK_NEW_LEADER if is_new else ASK_FOR_END):
            request = partial(Door.end, place=reading.place, leader_epoch=leader.epoch)
            self.ask(leader.node_id, request, lambda reply: self._told_end(reading, reply))
            return
        if luck > 1 - BACK_TO_START:
            reading.position = 0
            self.journal.log(*reading.place).sought(self.host)
        position = reading.position
        request = partial(
            Door.fetch, place=reading.place, offset=position, leader_epoch=leader.epoch, wait_ms=WAIT_MS
        )
        self.ask(leader.node_id, request, lambda reply: self._polled(reading, position, reply))

    def _told_end(self, reading: Reading, reply: object) -> None:
        if isinstance(reply, Position):
            self._next(reading)
        else:
            self._refused(reading, reply)

    def _polled(self, reading: Reading, position: int, reply: object) -> None:
        if not isinstance(reply, Polled):
            self._refused(reading, reply)
            return
        records = [pair for pair in values_of(reply.content) if pair[0] >= position]
        if not records:
            self.after_ms(REST_MS, self._next, reading)
            return
        self.journal.log(*reading.place).polled(self.host, records)
        reading.position = records[-1][0] + 1
        self._next(reading)

    def _refused(self, reading: Reading, reply: object) -> None:
        if isinstance(reply, Refused) and reply.why is Why.OFFSET_OUT_OF_RANGE:
            # It stands behind a record that a leader has shown: whoever leads now must have that one.
            self.journal.failures.append(
                f"position lost: {self.host} at {reading.position} of {reading.place}: {reply.detail}"
            )
        elif not is_retriable(reply):
            self.journal.failures.append(f"refused: {self.host} was told {reply}")
        self._look_around(reading)

    def _look_around(self, reading: Reading) -> None:
        if not self._stopped:
            self.after_ms(self.backoff_ms(), self.look_around, lambda: self._next(reading))
