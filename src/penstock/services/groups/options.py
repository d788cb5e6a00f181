"""What an operator may choose about groups, and where it is set."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.groups import GroupOptions
from penstock.core.metadata import MetadataImage, broker_setting
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.model import NodeId
from penstock.services.coordinator import CoordinatorOptions

_MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class GroupsOptions:
    """How this node keeps groups."""

    machine: GroupOptions = field(default_factory=GroupOptions)
    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)


def options_of_node(
    image: MetadataImage, node_id: NodeId, static: Mapping[str, str] = NO_CONFIGS
) -> GroupsOptions:
    """The options under Kafka's names, as they count when the node starts."""

    def number(key: str) -> int:
        value = broker_setting(image, key, node_id, static)
        assert isinstance(value, int), key
        return value

    return GroupsOptions(
        GroupOptions(
            session_timeout_ms_min=number("group.min.session.timeout.ms"),
            session_timeout_ms_max=number("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
            group_members_max=number("group.max.size"),
            offset_metadata_chars_max=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * _MS_PER_MINUTE,
            offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
        ),
        CoordinatorOptions(commit_timeout_ms=number("offsets.commit.timeout.ms")),
    )
