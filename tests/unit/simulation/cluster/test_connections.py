"""A client's requests come in order or not at all, and late ones still arrive."""

from typing import Any

from penstock.simulation.cluster.clients.connections import Connection, Lost
from penstock.simulation.cluster.door import Answer, Door

from penstock.core.model import MILLISECOND, SECOND
from penstock.runtime import Callback, Runtime
from penstock.simulation import World
from penstock.simulation.node import SimulatedNode
from penstock.storage.disk import Disk


class OpenNode:
    """A machine whose door is open; requests bring along what to do."""

    def __init__(self, world: World) -> None:
        self.machine: SimulatedNode = world.add("node", self._program)
        self._door = Door.__new__(Door)

    @property
    def door(self) -> Door | None:
        return self._door if self.machine.is_up else None

    def _program(self, runtime: Runtime, disk: Disk) -> "OpenNode":
        return self

    def stop(self, done: Callback) -> None:
        done()


class Stage:
    """A node, a client host, and a connection between them."""

    def __init__(self) -> None:
        self.world = World(1)
        self.node = OpenNode(self.world)
        self.world.start_all()
        self.world.run(MILLISECOND)
        self.connection = self.connect()
        self.arrived: list[int] = []
        self.answers: list[Any] = []

    def connect(self) -> Connection:
        connection = Connection(self.world.network, "client", self.node)
        self.world.network.when_process_ends(connection.process_ended)
        return connection

    def ask(self, number: int, *, is_answered: bool = True) -> object:
        def request(_: Door, answer: Answer) -> None:
            self.arrived.append(number)
            if is_answered:
                answer(number)

        return self.connection.ask(request, self.answers.append)


def test_requests_and_answers_keep_their_order() -> None:
    stage = Stage()

    for number in range(50):
        stage.ask(number)
    stage.world.run(SECOND)

    assert stage.arrived == list(range(50))
    assert stage.answers == list(range(50))


def test_a_request_that_meets_a_short_cut_arrives_late_and_in_order() -> None:
    stage = Stage()
    stage.world.network.cut("client", "node")
    stage.ask(1)
    stage.world.run(100 * MILLISECOND)
    stage.world.network.mend("client", "node")
    stage.ask(2)
    stage.world.run(10 * MILLISECOND)
    assert stage.arrived == []

    stage.world.run(SECOND)

    assert stage.arrived == [1, 2]
    assert stage.answers == [1, 2]


def test_a_client_that_has_lost_patience_does_not_stop_its_request() -> None:
    stage = Stage()
    stage.world.network.cut("client", "node")
    call = stage.ask(1)
    stage.world.run(100 * MILLISECOND)

    stage.connection.give_up(call)
    stage.world.network.mend("client", "node")
    stage.world.run(SECOND)

    assert stage.answers == [Lost.LOST]
    assert stage.arrived == [1]


def test_patience_with_an_answered_request_costs_nothing() -> None:
    stage = Stage()
    call = stage.ask(1)
    stage.world.run(SECOND)

    stage.connection.give_up(call)

    assert stage.answers == [1]
    assert not stage.connection.is_over


def test_a_long_cut_loses_what_was_sent_into_it() -> None:
    stage = Stage()
    stage.world.network.cut("client", "node")
    stage.ask(1)
    stage.world.run(10 * SECOND)

    stage.world.network.mend("client", "node")
    stage.world.run(10 * SECOND)

    assert stage.arrived == []


def test_the_death_of_the_process_is_told_at_once() -> None:
    stage = Stage()
    stage.ask(1, is_answered=False)
    stage.world.run(100 * MILLISECOND)

    stage.node.machine.kill()
    stage.world.run(100 * MILLISECOND)

    assert stage.answers == [Lost.LOST]


def test_a_power_cut_is_silent() -> None:
    stage = Stage()
    stage.ask(1, is_answered=False)
    stage.world.run(100 * MILLISECOND)

    stage.node.machine.cut_power()
    stage.ask(2)
    stage.world.run(SECOND)

    assert stage.answers == []


def test_a_connection_does_not_survive_into_the_next_life() -> None:
    stage = Stage()
    stage.ask(1)
    stage.world.run(100 * MILLISECOND)
    stage.node.machine.cut_power()
    stage.node.machine.start()
    stage.world.run(100 * MILLISECOND)

    stage.ask(2)
    stage.world.run(SECOND)

    assert stage.arrived == [1]
    assert stage.answers == [1, Lost.LOST]
