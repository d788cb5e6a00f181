"""Whatever settings are drawn for a running cluster, it lives, serves, restarts and can be corrected.

The long form is `python -m tests.property.settings.random_settings --draws 10000`.
"""

from typing import Any

import pytest

from penstock.core.metadata import ConfigOperation, ConfigResourceType
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.property.settings.drawn_changes import DrawnChange, DrawnKey
from tests.property.settings.random_settings import (
    OTHER,
    VICTIM,
    SettingsCluster,
    run,
    settings_cluster,
    unchecked,
)

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


@pytest.mark.parametrize("nodes", [1, 3])
def test_random_settings_do_no_harm(nodes: int) -> None:
    done = run(seed=nodes, draws=60, nodes=nodes, correct_every=25, restart_every=20)

    assert done.draws == 60
    assert done.accepted >= 10
    assert done.restarts == 3


@pytest.mark.parametrize("nodes", [1, 3])
def test_random_settings_that_nobody_checked_do_no_harm(nodes: int) -> None:
    done = run(seed=10 + nodes, draws=60, nodes=nodes, is_poisoned=True, correct_every=25, restart_every=20)

    assert done.accepted >= 30


def change(operation: ConfigOperation, name: str, key: str, value: str | None) -> DrawnChange:
    kind = ConfigResourceType.TOPIC
    return DrawnChange(kind, name, (DrawnKey(operation, key, value),), is_whole=False, validate_only=False)


def partition_of(cluster: SettingsCluster, topic: str) -> Any:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
    answer = cluster.traffic.admin(request, lambda _: ErrorCode.NONE)
    return answer.topics[0].partitions[0]


def test_a_topic_with_a_setting_that_cannot_be_read_is_offline_alone_until_it_is_corrected() -> None:
    with settings_cluster(seed=5, is_poisoned=True) as cluster:
        with unchecked():
            assert cluster.change(change(SET, VICTIM, "retention.ms", "for ever")) is ErrorCode.NONE
        assert cluster.traffic.produce(VICTIM, b"still") is ErrorCode.NONE
        cluster.restart()

        offline = partition_of(cluster, VICTIM)
        produced = cluster.traffic.produce_at(VICTIM, b"v")
        other = cluster.traffic.produce(OTHER, b"v")
        corrected = cluster.change(change(DELETE, VICTIM, "retention.ms", None))
        after = cluster.traffic.produce(VICTIM, b"again")

        assert (offline.leader_id, tuple(offline.offline_replicas)) == (-1, (1,))
        assert produced is ErrorCode.KAFKA_STORAGE_ERROR
        assert (other, corrected, after) == (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE)
        assert b"still" in cluster.traffic.read_all(VICTIM)
