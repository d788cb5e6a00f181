"""Which APIs there are: key, name, versions, and how to get at their messages."""

import importlib
from functools import cached_property
from typing import Final

import msgspec

from penstock.core.model import ProtocolError
from penstock.core.protocol.codec import Message
from penstock.core.protocol.schema import VERSION_MAX


class Api(msgspec.Struct, frozen=True, dict=True):
    """One Kafka API; its messages are looked up once and kept in the instance."""

    key: int
    name: str
    module: str
    versions: range
    flexible_from: int = VERSION_MAX

    @cached_property
    def request(self) -> type[Message]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._message("Response")

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def _message(self, kind: str) -> type[Message]:
        module = importlib.import_module(f"penstock.core.protocol.messages.{self.module}")
        found: type[Message] = getattr(module, self.name + kind)
        return found


def api(key: int) -> Api:
    """Answer the API of `key`; what a peer asks for may not exist."""
    found = APIS.get(key)
    if found is None:
        raise ProtocolError(f"there is no API {key}")
    return found


def name_of(key: int) -> str:
    """Answer a name for logs and metrics, whatever `key` is."""
    found = APIS.get(key)
    return found.name if found is not None else "Unknown"


def _listed(
    key: int, module: str, first: int, last: int, flexible_from: int = VERSION_MAX
) -> tuple[int, Api]:
    name = "".join(word.capitalize() for word in module.split("_"))
    return key, Api(key, name, module, range(first, last + 1), flexible_from)


APIS: Final[dict[int, Api]] = dict(
    [
        _listed(0, "produce", 3, 13, 9),
        _listed(1, "fetch", 4, 18, 12),
        _listed(2, "list_offsets", 0, 11, 6),
        _listed(3, "metadata", 0, 13, 9),
        _listed(8, "offset_commit", 0, 10, 8),
        _listed(9, "offset_fetch", 0, 10, 6),
        _listed(10, "find_coordinator", 0, 6, 3),
        _listed(11, "join_group", 0, 9, 6),
        _listed(12, "heartbeat", 0, 4, 4),
        _listed(13, "leave_group", 0, 5, 4),
        _listed(14, "sync_group", 0, 5, 4),
        _listed(15, "describe_groups", 0, 6, 5),
        _listed(16, "list_groups", 0, 5, 3),
        _listed(17, "sasl_handshake", 0, 1),
        _listed(18, "api_versions", 0, 4, 3),
        _listed(19, "create_topics", 0, 7, 5),
        _listed(20, "delete_topics", 0, 6, 4),
        _listed(21, "delete_records", 0, 2, 2),
        _listed(22, "init_producer_id", 0, 6, 2),
        _listed(23, "offset_for_leader_epoch", 0, 4, 4),
        _listed(24, "add_partitions_to_txn", 0, 5, 3),
        _listed(25, "add_offsets_to_txn", 0, 4, 3),
        _listed(26, "end_txn", 0, 5, 3),
        _listed(27, "write_txn_markers", 0, 2, 1),
        _listed(28, "txn_offset_commit", 0, 5, 3),
        _listed(29, "describe_acls", 0, 3, 2),
        _listed(30, "create_acls", 0, 3, 2),
        _listed(31, "delete_acls", 0, 3, 2),
        _listed(32, "describe_configs", 0, 4, 4),
        _listed(33, "alter_configs", 0, 2, 2),
        _listed(34, "alter_replica_log_dirs", 0, 2, 2),
        _listed(35, "describe_log_dirs", 0, 5, 2),
        _listed(36, "sasl_authenticate", 0, 2, 2),
        _listed(37, "create_partitions", 0, 3, 2),
        _listed(38, "create_delegation_token", 0, 3, 2),
        _listed(39, "renew_delegation_token", 0, 2, 2),
        _listed(40, "expire_delegation_token", 0, 2, 2),
        _listed(41, "describe_delegation_token", 0, 3, 2),
        _listed(42, "delete_groups", 0, 2, 2),
        _listed(43, "elect_leaders", 0, 2, 2),
        _listed(44, "incremental_alter_configs", 0, 1, 1),
        _listed(45, "alter_partition_reassignments", 0, 1, 0),
        _listed(46, "list_partition_reassignments", 0, 0, 0),
        _listed(47, "offset_delete", 0, 0),
        _listed(48, "describe_client_quotas", 0, 1, 1),
        _listed(49, "alter_client_quotas", 0, 1, 1),
        _listed(50, "describe_user_scram_credentials", 0, 0, 0),
        _listed(51, "alter_user_scram_credentials", 0, 0, 0),
        _listed(55, "describe_quorum", 0, 2, 0),
        _listed(57, "update_features", 0, 2, 0),
        _listed(60, "describe_cluster", 0, 2, 0),
        _listed(61, "describe_producers", 0, 0, 0),
        _listed(64, "unregister_broker", 0, 0, 0),
        _listed(65, "describe_transactions", 0, 0, 0),
        _listed(66, "list_transactions", 0, 2, 0),
        _listed(68, "consumer_group_heartbeat", 0, 1, 0),
        _listed(69, "consumer_group_describe", 0, 1, 0),
        _listed(71, "get_telemetry_subscriptions", 0, 0, 0),
        _listed(72, "push_telemetry", 0, 0, 0),
        _listed(74, "list_config_resources", 0, 1, 0),
        _listed(75, "describe_topic_partitions", 0, 0, 0),
        _listed(76, "share_group_heartbeat", 1, 1, 0),
        _listed(77, "share_group_describe", 1, 1, 0),
        _listed(78, "share_fetch", 1, 2, 0),
        _listed(79, "share_acknowledge", 1, 2, 0),
        _listed(80, "add_raft_voter", 0, 1, 0),
        _listed(81, "remove_raft_voter", 0, 0, 0),
        _listed(83, "initialize_share_group_state", 0, 0, 0),
        _listed(84, "read_share_group_state", 0, 0, 0),
        _listed(85, "write_share_group_state", 0, 1, 0),
        _listed(86, "delete_share_group_state", 0, 0, 0),
        _listed(87, "read_share_group_state_summary", 0, 1, 0),
        _listed(88, "streams_group_heartbeat", 0, 0, 0),
        _listed(89, "streams_group_describe", 0, 0, 0),
        _listed(90, "describe_share_group_offsets", 0, 1, 0),
        _listed(91, "alter_share_group_offsets", 0, 0, 0),
        _listed(92, "delete_share_group_offsets", 0, 0, 0),
        # Ours: far above Kafka's own. Clients skip keys that they do not know.
        _listed(10_000, "batch_commit", 0, 0, 0),
        _listed(10_001, "queue_receive", 0, 0, 0),
        _listed(10_002, "queue_settle", 0, 0, 0),
        _listed(10_003, "queue_describe", 0, 0, 0),
        _listed(10_004, "queue_alter", 0, 0, 0),
        _listed(10_005, "queue_peek", 0, 0, 0),
        _listed(10_006, "queue_redrive", 0, 0, 0),
        _listed(10_010, "delay_records", 0, 0, 0),
        _listed(10_011, "cancel_delays", 0, 0, 0),
        _listed(10_012, "list_delays", 0, 0, 0),
        _listed(10_020, "create_api_key", 0, 0, 0),
        _listed(10_021, "list_api_keys", 0, 0, 0),
        _listed(10_022, "delete_api_key", 0, 0, 0),
        _listed(10_030, "rotate_master_key", 0, 0, 0),
        _listed(10_031, "describe_master_keys", 0, 0, 0),
    ]
)
