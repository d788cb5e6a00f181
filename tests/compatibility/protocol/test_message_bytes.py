"""Every message and version, byte for byte, against the codecs of kio and kafka-python."""

import pytest

from penstock.core.protocol.codec import Message, decode_whole
from penstock.core.protocol.messages import APIS, Api
from tests.compatibility.protocol.oracles import KafkaPython, Kio, Oracle
from tests.property.protocol.samples import OWN_TAGS, sample, seeded

ROUNDS = 4
ORACLES: dict[str, Oracle] = {"kio": Kio(), "kafka-python": KafkaPython()}
KINDS = ("Request", "Response")

# Versions that Kafka 4.0 retired, and kio with it; ours come from the tables of Kafka 3.9.
# kafka-python still speaks them, except for delegation tokens, whose version 0 has no oracle.
KIO_LACKS = {
    "ListOffsets": {0},
    "OffsetCommit": {0, 1},
    "OffsetFetch": {0},
    "CreateTopics": {0, 1},
    "DeleteTopics": {0},
    "OffsetForLeaderEpoch": {0, 1},
    "WriteTxnMarkers": {0},
    "DescribeAcls": {0},
    "CreateAcls": {0},
    "DeleteAcls": {0},
    "DescribeConfigs": {0},
    "AlterReplicaLogDirs": {0},
    "DescribeLogDirs": {0},
    "CreateDelegationToken": {0},
    "RenewDelegationToken": {0},
    "ExpireDelegationToken": {0},
    "DescribeDelegationToken": {0},
}

# What kafka-python does not implement at all.
KAFKA_PYTHON_LACKS = {
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "UnregisterBroker",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
}


def versions_known_to(oracle_name: str, api: Api) -> set[int]:
    if oracle_name == "kio":
        return set(api.versions) - KIO_LACKS.get(api.name, set())
    return set() if api.name in KAFKA_PYTHON_LACKS else set(api.versions)


# Those of Penstock alone are far above all of Kafka's.
KAFKA_APIS = [api for api in APIS.values() if api.key < 1_000]
CASES = [
    pytest.param(oracle, api, kind, id=f"{oracle}-{api.name}{kind}")
    for oracle in ORACLES
    for api in KAFKA_APIS
    for kind in KINDS
    if versions_known_to(oracle, api)
]


@pytest.mark.parametrize(("oracle_name", "api", "kind"), CASES)
def test_our_bytes_are_theirs_in_every_version(oracle_name: str, api: Api, kind: str) -> None:
    oracle = ORACLES[oracle_name]
    message = api.request if kind == "Request" else api.response
    random = seeded(message.__name__)

    for version in sorted(versions_known_to(oracle_name, api)):
        for _ in range(ROUNDS):
            ours = sample(random, message, version, tags_below=OWN_TAGS)

            encoded = ours.encode(version)
            theirs = oracle.encode(api, kind, version, ours)

            assert encoded == theirs, f"v{version}: {ours}"
            assert decode_whole(message, theirs, version) == ours, f"v{version}"
            if not reads_as_version_0(oracle_name, ours):
                assert oracle.reencode(api, kind, version, encoded) == encoded, f"v{version}"


def reads_as_version_0(oracle_name: str, ours: Message) -> bool:
    """kafka-python takes every ApiVersions response that carries an error for one in version 0."""
    return (
        oracle_name == "kafka-python"
        and type(ours).__name__ == "ApiVersionsResponse"
        and getattr(ours, "error_code", 0) != 0
    )


@pytest.mark.parametrize("oracle_name", ORACLES)
def test_no_version_that_an_oracle_knows_goes_unchecked(oracle_name: str) -> None:
    oracle = ORACLES[oracle_name]

    for api in KAFKA_APIS:
        for kind in KINDS:
            known = oracle.versions(api, kind)

            assert known & set(api.versions) == versions_known_to(oracle_name, api), f"{api.name}{kind}"
            assert max(known, default=0) <= api.versions[-1], f"{api.name}{kind}"
