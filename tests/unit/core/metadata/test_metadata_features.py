"""Feature levels of the cluster."""

from dataclasses import replace

import pytest

from penstock.core.metadata import (
    DEFAULT_LEVELS,
    BootstrapCluster,
    FeatureRange,
    FeatureUpdate,
    MetadataMachine,
    Ok,
    UpdateFeatures,
    UpgradeType,
)
from penstock.core.metadata.records import FeatureLevelSet
from penstock.core.model import ApiError, ErrorKind
from tests.unit.core.metadata.clusters import CLUSTER, cluster, perform, registration

DOWN = UpgradeType.SAFE_DOWNGRADE


def update(*updates: tuple[str, int] | tuple[str, int, UpgradeType]) -> UpdateFeatures:
    return UpdateFeatures(tuple(FeatureUpdate(*each) for each in updates))


def test_a_new_cluster_uses_the_highest_levels_there_are() -> None:
    machine = cluster()

    assert machine.image.features.items() == sorted(DEFAULT_LEVELS)
    assert machine.image.feature_level("transaction.version") == 2
    assert machine.image.feature_level("unheard.of") == 0


def test_a_new_cluster_can_begin_lower() -> None:
    machine = MetadataMachine()

    perform(machine, BootstrapCluster(CLUSTER, levels=(("transaction.version", 1),)))

    assert machine.image.features.items() == [("transaction.version", 1)]


def test_levels_go_down_when_asked_to_and_up_again() -> None:
    machine = cluster()

    assert perform(machine, update(("transaction.version", 1, DOWN), ("group.version", 0, DOWN))) == Ok()
    assert (
        machine.image.feature_level("transaction.version"),
        "group.version" in machine.image.features,
    ) == (
        1,
        False,
    )
    assert perform(machine, update(("transaction.version", 2))) == Ok()
    assert machine.image.feature_level("transaction.version") == 2


@pytest.mark.parametrize(
    "command",
    [
        update(("transaction.version", 1)),
        update(("transaction.version", 3)),
        update(("transaction.version", -1, DOWN)),
        update(("metadata.version", 24, DOWN)),
        update(("no.such.version", 1)),
        # Levels that would change nothing.
        update(("share.version", 2)),
        update(("eligible.leader.replicas.version", 0, DOWN)),
        update(("group.version", 0, DOWN), ("transaction.version", 9)),
    ],
)
def test_levels_that_cannot_be_are_refused_and_nothing_changes(command: UpdateFeatures) -> None:
    machine = cluster()
    before = machine.image

    reply = perform(machine, command)

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.INVALID_FEATURE_LEVEL
    assert machine.image == before


def test_going_up_is_not_a_downgrade() -> None:
    machine = cluster()
    perform(machine, update(("group.version", 0, DOWN)))

    reply = perform(machine, update(("group.version", 1, DOWN)))

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.INVALID_FEATURE_LEVEL


def test_a_level_that_one_broker_cannot_read_is_refused() -> None:
    machine = MetadataMachine()
    perform(machine, BootstrapCluster(CLUSTER, levels=(("group.version", 0),)))
    perform(machine, replace(registration(1), features=(FeatureRange("group.version", 0, 0),)))

    reply = perform(machine, update(("group.version", 1)))

    assert isinstance(reply, ApiError)
    assert "broker 1" in reply.detail


def test_validation_alone_changes_no_level() -> None:
    machine = cluster()

    reply = perform(
        machine, UpdateFeatures((FeatureUpdate("transaction.version", 1, DOWN),), validate_only=True)
    )

    assert reply == Ok()
    assert machine.image.feature_level("transaction.version") == 2


def test_a_cluster_that_was_at_a_level_which_is_not_offered_any_more_takes_brokers_and_leaves_it() -> None:
    machine = cluster(brokers=0)
    machine.apply(FeatureLevelSet("share.version", 1))

    assert not isinstance(perform(machine, registration(1)), ApiError)
    assert perform(machine, update(("share.version", 0, DOWN))) == Ok()
    assert machine.image.feature_level("share.version") == 0
