"""What librdkafka does not tell of consumer groups (KIP-848): epochs and subscriptions."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.client.connection_security import ConnectionSecurity
from penstock.client.endpoint import ClientError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponseMember,
)

CLASSIC_MEMBER = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupEpochs:
    """The epochs of a consumer group, and what its members say of themselves, by member id."""

    group_epoch: int
    target_epoch: int
    members: Mapping[str, Mapping[str, Any]]


def consumer_group_epochs(
    coordinator: BrokerAddress, group: str, security: ConnectionSecurity | None = None
) -> ConsumerGroupEpochs:
    """Ask the group's coordinator."""
    with closing(BrokerConnection(coordinator, security=security)) as connection:
        request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
        found = connection.ask(request).groups[0]
    if found.error_code != ErrorCode.NONE:
        raise ClientError(f"group {group}: {found.error_message or ErrorCode(found.error_code).name}")
    members = {member.member_id: _member(member) for member in found.members}
    return ConsumerGroupEpochs(found.group_epoch, found.assignment_epoch, members)


def _member(member: ConsumerGroupDescribeResponseMember) -> dict[str, Any]:
    return {
        "epoch": member.member_epoch,
        "protocol": "classic" if member.member_type == CLASSIC_MEMBER else "consumer",
        "rack": member.rack_id,
        "topics": list(member.subscribed_topic_names),
        "pattern": member.subscribed_topic_regex,
        "target": [
            f"{each.topic_name}-{index}"
            for each in member.target_assignment.topic_partitions
            for index in each.partitions
        ],
    }
