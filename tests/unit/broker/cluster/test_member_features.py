"""A level is raised only if the controllers that are no brokers support it, too."""

from uuid import UUID

import pytest

from penstock.broker.cluster.node_addresses import MemberFeatures
from penstock.core.metadata import (
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    BootstrapCluster,
    FeatureUpdate,
    MetadataMachine,
    Ok,
    RegisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from penstock.core.model import ApiError, ErrorKind, Instant, NodeId
from penstock.core.raft import Configuration, Member
from tests.unit.broker.cluster.cluster_stage import ClusterStage, member_options, voters

MEMBERS = tuple(Member(NodeId(number), UUID(int=number)) for number in (1, 2, 3))
LEVEL = next(known.highest for known in SUPPORTED_FEATURES if known.name == METADATA_VERSION)
RAISE = UpdateFeatures((FeatureUpdate(METADATA_VERSION, LEVEL),))


@pytest.fixture
def features() -> MemberFeatures:
    known = MemberFeatures(MEMBERS[0])
    known.members_changed(Configuration(MEMBERS[:2], (MEMBERS[2],)))
    return known


@pytest.fixture
def machine() -> MetadataMachine:
    """Node 3 is a broker, the others are controllers only."""
    made = MetadataMachine()
    broker = RegisterBroker("cluster", NodeId(3), UUID(int=3), features=SUPPORTED_FEATURES)
    for command in (BootstrapCluster("cluster"), broker):
        made.replay(made.decide(command, Instant(0)).facts)
    return made


def test_a_controller_that_is_not_there_holds_an_upgrade_up(
    features: MemberFeatures, machine: MetadataMachine
) -> None:
    error = features.problem_with(RAISE, machine.image)

    assert error is not None
    assert error.kind is ErrorKind.INVALID_FEATURE_LEVEL
    assert error.detail == f"controller 2 is down, or does not support {METADATA_VERSION} at {LEVEL}"


def test_a_controller_that_supports_the_level_does_not(
    features: MemberFeatures, machine: MetadataMachine
) -> None:
    features.learn(NodeId(2), SUPPORTED_FEATURES)

    assert features.problem_with(RAISE, machine.image) is None


def test_a_controller_may_come_back_as_another_version(
    features: MemberFeatures, machine: MetadataMachine
) -> None:
    features.learn(NodeId(2), SUPPORTED_FEATURES)

    features.learn(NodeId(2), ())

    assert features.problem_with(RAISE, machine.image) is not None


def test_a_controller_that_is_no_broker_says_what_it_supports_over_its_link() -> None:
    stage = ClusterStage()
    for number in (1, 2, 3):
        stage.add(member_options(number, voters(1, 2, 3)))
    stage.configure("n3", is_broker=False)
    stage.start()
    stage.until(lambda: stage.is_live("n1", "n2") and stage.incarnations["n3"].is_joined)

    down = FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)
    assert stage.submit("n1", UpdateFeatures((down,))) == Ok()

    stage.world.nodes["n3"].kill()
    stage.run_ms(5_000)
    refused = stage.submit("n1", UpdateFeatures((FeatureUpdate("transaction.version", 2),)))
    assert isinstance(refused, ApiError)
    assert "controller 3 is down" in refused.detail
    stage.start("n3")
    stage.until(lambda: stage.incarnations["n3"].is_joined)
    stage.run_ms(5_000)
    assert stage.submit("n1", UpdateFeatures((FeatureUpdate("transaction.version", 2),))) == Ok()
