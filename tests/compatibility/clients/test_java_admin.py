"""Every method of the Java Admin client gets what it asks for, or the error that Kafka gives."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.peers.maven import PeerUnavailable, jars, java
from tests.compatibility.node import running_node

PROGRAM = Path(__file__).parent / "java" / "AdminMethods.java"
SECONDS_MAX = 240
# What the broker below returns, and Kafka 4.3 with its defaults in the same run; steps that are not here
# return `ok` from both.
ERRORS = {
    "createTopics again": "TopicExistsException",
    "describeTopics unknown-id": "UnknownTopicIdException",
    "incrementalAlterConfigs unknown": "InvalidConfigurationException",
    "incrementalAlterConfigs wrong": "InvalidConfigurationException",
    "alterReplicaLogDirs": "LogDirNotFoundException",
    "createPartitions fewer": "InvalidPartitionsException",
    "alterPartitionReassignments": "InvalidReplicaAssignmentException",
    "alterPartitionReassignments cancel": "NoReassignmentInProgressException",
    "describeClassicGroups unknown": "GroupIdNotFoundException",
    "removeMembersFromConsumerGroup": "UnknownMemberIdException",
    "describeTransactions": "TransactionalIdNotFoundException",
    "describeAcls": "SecurityDisabledException",
    "createAcls": "SecurityDisabledException",
    "deleteAcls": "SecurityDisabledException",
    "createDelegationToken": "UnsupportedByAuthenticationException",
    "renewDelegationToken": "UnsupportedByAuthenticationException",
    "expireDelegationToken": "UnsupportedByAuthenticationException",
    "describeDelegationToken": "UnsupportedByAuthenticationException",
    "alterUserScramCredentials delete": "ResourceNotFoundException",
    "updateFeatures unknown": "InvalidUpdateVersionException",
    "updateFeatures too-high": "InvalidUpdateVersionException",
    "updateFeatures down-as-up": "InvalidUpdateVersionException",
    "unregisterBroker": "BrokerIdNotRegisteredException",
    "deleteTopics unknown": "UnknownTopicOrPartitionException",
}
# Where Kafka 4.3 answers otherwise, and why this broker does not.
DIFFERENT = {
    # Kafka makes a share group when its offsets are altered; here it begins with its first member.
    "describeShareGroups": "GroupIdNotFoundException",
    "listShareGroupOffsets": "GroupIdNotFoundException",
    "alterShareGroupOffsets": "GroupIdNotFoundException",
    "deleteShareGroupOffsets": "GroupIdNotFoundException",
    # Kafka has streams groups, which are on by default; with the feature off, the error is the same.
    "describeStreamsGroups": "UnsupportedVersionException",
    # Nobody made them: Kafka did, when it altered their offsets.
    "deleteShareGroups": "GroupIdNotFoundException",
    "deleteStreamsGroups": "GroupIdNotFoundException",
    # A group without members and offsets is gone; in Kafka it is there until its retention ends.
    "deleteConsumerGroups": "GroupIdNotFoundException",
    # Would change nothing, and is not accepted and ignored: threads.
    "incrementalAlterConfigs refused": "InvalidConfigurationException",
    # Kafka's quorum is static unless it is formatted otherwise; here the voter has to exist.
    "addRaftVoter": "TimeoutException",
    "removeRaftVoter": "VoterNotFoundException",
}


class Step(NamedTuple):
    """One line of the program: what it did, `ok` or the error, and more."""

    name: str
    outcome: str
    detail: str


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Step]:
    """What the program printed, on a node of its own."""
    try:
        program, classes = java(), f"{jars()}/*"
    except PeerUnavailable as reason:
        pytest.skip(f"Java or Kafka's jars are not to be had: {reason}")
    with running_node(tmp_path_factory.mktemp("admin"), "node.id=1", "groups.offsets_partitions=1") as broker:
        done = subprocess.run(
            [program, "-cp", classes, str(PROGRAM), broker.address],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return {step.name: step for step in (Step(*line.split("\t")) for line in done.stdout.splitlines())}


def test_every_method_was_called(steps: dict[str, Step]) -> None:
    assert "NOT CALLED" not in steps
    assert ERRORS.keys() | DIFFERENT.keys() <= steps.keys()


def test_every_method_gets_its_answer_or_the_error_of_kafka(steps: dict[str, Step]) -> None:
    wanted = {name: ERRORS.get(name) or DIFFERENT.get(name) or "ok" for name in steps}

    assert {name: step.outcome for name, step in steps.items()} == wanted, list(steps.values())


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("describeTopics by-id", "admin"),
        ("listOffsets", "3"),
        ("listOffsets max-timestamp", "2"),
        ("electLeaders", "ElectionNotNeededException"),
        ("listGroups", "[readers Classic]"),
        ("describeConsumerGroups", "Empty"),
        ("listConfigResources", "[asked, watched]"),
        ("describeConfigs client-metrics", "300000"),
        ("describeUserScramCredentials", "{}"),
        ("describeClientQuotas", "{}"),
        ("clientInstanceId", "false"),
    ],
)
def test_the_answers_say_what_there_is(steps: dict[str, Step], name: str, detail: str) -> None:
    assert steps[name].detail == detail
