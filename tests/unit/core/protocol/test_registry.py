"""The register of APIs: complete, honest about versions, and lazy."""

import subprocess
import sys

import pytest

from penstock.core.model import ProtocolError
from penstock.core.protocol.generator import schema_of, size_min
from penstock.core.protocol.messages import APIS, Api, api, name_of
from penstock.core.protocol.schema import REQUIRED, ArrayOf, PartOf, Schema

# What clients and administration tools of Kafka 4.x may send: key, first and last version.
KAFKA_4 = {
    "Produce": (0, 3, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "OffsetCommit": (8, 2, 10),
    "OffsetFetch": (9, 1, 10),
    "FindCoordinator": (10, 0, 6),
    "JoinGroup": (11, 0, 9),
    "Heartbeat": (12, 0, 4),
    "LeaveGroup": (13, 0, 5),
    "SyncGroup": (14, 0, 5),
    "DescribeGroups": (15, 0, 6),
    "ListGroups": (16, 0, 5),
    "SaslHandshake": (17, 0, 1),
    "ApiVersions": (18, 0, 4),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "DeleteRecords": (21, 0, 2),
    "InitProducerId": (22, 0, 6),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "AddPartitionsToTxn": (24, 0, 5),
    "AddOffsetsToTxn": (25, 0, 4),
    "EndTxn": (26, 0, 5),
    "WriteTxnMarkers": (27, 1, 2),
    "TxnOffsetCommit": (28, 0, 5),
    "DescribeAcls": (29, 1, 3),
    "CreateAcls": (30, 1, 3),
    "DeleteAcls": (31, 1, 3),
    "DescribeConfigs": (32, 1, 4),
    "AlterConfigs": (33, 0, 2),
    "AlterReplicaLogDirs": (34, 1, 2),
    "DescribeLogDirs": (35, 1, 5),
    "SaslAuthenticate": (36, 0, 2),
    "CreatePartitions": (37, 0, 3),
    "CreateDelegationToken": (38, 1, 3),
    "RenewDelegationToken": (39, 1, 2),
    "ExpireDelegationToken": (40, 1, 2),
    "DescribeDelegationToken": (41, 1, 3),
    "DeleteGroups": (42, 0, 2),
    "ElectLeaders": (43, 0, 2),
    "IncrementalAlterConfigs": (44, 0, 1),
    "AlterPartitionReassignments": (45, 0, 1),
    "ListPartitionReassignments": (46, 0, 0),
    "OffsetDelete": (47, 0, 0),
    "DescribeClientQuotas": (48, 0, 1),
    "AlterClientQuotas": (49, 0, 1),
    "DescribeUserScramCredentials": (50, 0, 0),
    "AlterUserScramCredentials": (51, 0, 0),
    "DescribeQuorum": (55, 0, 2),
    "UpdateFeatures": (57, 0, 2),
    "DescribeCluster": (60, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "UnregisterBroker": (64, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
    "ConsumerGroupHeartbeat": (68, 0, 1),
    "ConsumerGroupDescribe": (69, 0, 1),
    "GetTelemetrySubscriptions": (71, 0, 0),
    "PushTelemetry": (72, 0, 0),
    "ListConfigResources": (74, 0, 1),
    "DescribeTopicPartitions": (75, 0, 0),
    "ShareGroupHeartbeat": (76, 1, 1),
    "ShareGroupDescribe": (77, 1, 1),
    "ShareFetch": (78, 1, 2),
    "ShareAcknowledge": (79, 1, 2),
    "AddRaftVoter": (80, 0, 1),
    "RemoveRaftVoter": (81, 0, 0),
    "InitializeShareGroupState": (83, 0, 0),
    "ReadShareGroupState": (84, 0, 0),
    "WriteShareGroupState": (85, 0, 1),
    "DeleteShareGroupState": (86, 0, 0),
    "ReadShareGroupStateSummary": (87, 0, 1),
    "StreamsGroupHeartbeat": (88, 0, 0),
    "StreamsGroupDescribe": (89, 0, 0),
    "DescribeShareGroupOffsets": (90, 0, 1),
    "AlterShareGroupOffsets": (91, 0, 0),
    "DeleteShareGroupOffsets": (92, 0, 0),
}


def every_schema(schema: Schema) -> list[Schema]:
    found = [schema]
    for field in schema.fields:
        wire_type = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(wire_type, PartOf):
            found += every_schema(schema_of(wire_type))
    return found


@pytest.mark.parametrize("name", KAFKA_4)
def test_every_api_of_kafka_4_is_there_in_all_its_versions(name: str) -> None:
    key, first, last = KAFKA_4[name]

    found = api(key)

    assert found.name == name
    assert set(range(first, last + 1)) <= set(found.versions)


@pytest.mark.parametrize("listed", APIS.values(), ids=lambda found: found.name)
def test_the_register_says_what_the_messages_say(listed: Api) -> None:
    for message in (listed.request, listed.response):
        schema = message.__schema__

        assert schema.api_key == listed.key
        assert schema.versions == listed.versions
        assert schema.flexible_from == listed.flexible_from


@pytest.mark.parametrize("listed", APIS.values(), ids=lambda found: found.name)
def test_fields_that_come_and_go_have_a_default_and_elements_take_bytes(listed: Api) -> None:
    for message in (listed.request, listed.response):
        for schema in every_schema(message.__schema__):
            for field in schema.fields:
                history = field.history
                if history.since or history.until < listed.versions[-1] or history.tag is not None:
                    assert history.default is not REQUIRED, f"{schema.name}.{field.name}"
                if isinstance(field.type, ArrayOf):
                    last = listed.versions[-1]
                    assert size_min(field.type.element, last, listed.is_flexible(last)) > 0


@pytest.mark.parametrize("listed", APIS.values(), ids=lambda found: found.name)
def test_tags_of_a_part_are_distinct_and_start_with_flexible_versions(listed: Api) -> None:
    for message in (listed.request, listed.response):
        for schema in every_schema(message.__schema__):
            tagged = [field for field in schema.fields if field.history.tag is not None]

            assert len({field.history.tag for field in tagged}) == len(tagged)
            assert all(field.history.since >= listed.flexible_from for field in tagged)


def test_an_api_nobody_knows_is_a_protocol_error_but_has_a_name_for_logs() -> None:
    with pytest.raises(ProtocolError):
        api(999)

    assert name_of(999) == "Unknown"
    assert name_of(0) == "Produce"


def test_looking_at_the_register_imports_no_messages() -> None:
    program = (
        "import sys, penstock.core.protocol; "
        "print(*[m for m in sys.modules if m.startswith('penstock.core.protocol.messages.')])"
    )

    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert imported.stdout.split() == ["penstock.core.protocol.messages.registry"]
