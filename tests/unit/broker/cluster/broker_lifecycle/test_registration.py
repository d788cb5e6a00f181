"""A broker whose node id another one seems to have registers when that one's session is over."""

from typing import Any
from uuid import UUID

import pytest

from penstock.broker.cluster import (
    BrokerRegistrar,
    BrokerRegistration,
    BrokerSessionOptions,
    RegistrationRejected,
    show_cluster_id,
)
from penstock.core.metadata import MetadataImage, RegisterBroker, RegisteredBroker
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, NodeId
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import CrashableDisk
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

RIVAL = ApiError(ErrorKind.DUPLICATE_BROKER, "broker 4 is live with another data directory")


class RefusingController:
    """A controller somewhere else, whose answer the test sets."""

    def __init__(self) -> None:
        self.image = MetadataImage(cluster_id=show_cluster_id(UUID(int=5)))
        self.is_leading = False
        self.leader: NodeId | None = NodeId(1)
        self.answer: RegisteredBroker | ApiError = RIVAL

    def submit(self, command: RegisterBroker, done: Any) -> None:
        assert command.node_id == 4
        done(self.answer)


class Bench:
    def __init__(self) -> None:
        self.timers, self.controller = HandTimers(), RefusingController()
        self.epochs: list[BrokerEpoch] = []
        registrar = BrokerRegistrar(
            hand_runtime(self.timers, HandSyncs()),
            self.controller,  # type: ignore[arg-type]
            DataDirectory.open(CrashableDisk(), UUID(int=9)),
            BrokerRegistration(NodeId(4), ()),
            BrokerSessionOptions(),
        )
        registrar.join(self.epochs.append)


def test_it_waits_for_the_end_of_the_others_session() -> None:
    bench = Bench()

    bench.timers.pass_ms(4_000)
    bench.controller.answer = RegisteredBroker(BrokerEpoch(7))
    bench.timers.pass_ms(1_000)

    assert bench.epochs == [7]


def test_it_gives_up_if_the_other_one_lives_on() -> None:
    bench = Bench()

    with pytest.raises(RegistrationRejected, match="live with another data directory"):
        bench.timers.pass_ms(6_000)


def test_a_new_controller_gives_the_other_one_a_new_session() -> None:
    bench = Bench()
    bench.timers.pass_ms(4_000)

    bench.controller.leader = NodeId(2)
    bench.timers.pass_ms(4_000)
    assert bench.epochs == []

    with pytest.raises(RegistrationRejected):
        bench.timers.pass_ms(2_000)


def test_time_without_a_controller_is_not_counted() -> None:
    bench = Bench()
    bench.controller.answer = ApiError(ErrorKind.NOT_CONTROLLER)
    bench.timers.pass_ms(60_000)

    bench.controller.leader = NodeId(3)
    bench.controller.answer = RIVAL
    bench.timers.pass_ms(4_000)
    bench.controller.answer = RegisteredBroker(BrokerEpoch(7))
    bench.timers.pass_ms(1_000)

    assert bench.epochs == [7]


def test_a_controller_that_is_elected_again_gives_the_other_one_a_new_session() -> None:
    bench = Bench()
    bench.controller.answer = ApiError(ErrorKind.NOT_CONTROLLER)
    bench.timers.pass_ms(6_000)

    bench.controller.answer = RIVAL
    bench.timers.pass_ms(4_000)
    bench.controller.answer = RegisteredBroker(BrokerEpoch(7))
    bench.timers.pass_ms(1_000)

    assert bench.epochs == [7]
