"""A broker that shall be empty."""

from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import Endpoint
from penstock.client.errors import ClientError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)

DRAINED = "broker.drained"
BROKER = 4
SET, DELETE = 0, 1


def drain(endpoint: Endpoint, node_id: int, *, undo: bool = False) -> None:
    """Let a broker lead nothing that another can lead, and get nothing new; any broker can be asked.

    Its leaderships are elsewhere when this returns, as far as others are in sync. Replicas that it
    has stay until they are moved.
    """
    connection = connect(endpoint)
    try:
        change_drain(connection, node_id, undo=undo)
    finally:
        connection.close()


def change_drain(connection: BrokerConnection, node_id: int, *, undo: bool = False) -> None:
    config = IncrementalAlterConfigsRequestConfig(
        name=DRAINED, config_operation=DELETE if undo else SET, value=None if undo else "true"
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=BROKER, resource_name=str(node_id), configs=(config,)
    )
    answer = connection.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    for row in answer.responses:
        _expect(f"broker {node_id}", row.error_code, row.error_message)


def is_drained(connection: BrokerConnection, node_id: int) -> bool:
    """Whether the broker at the other end, whose number this is, is drained."""
    resource = DescribeConfigsRequestResource(
        resource_type=BROKER, resource_name=str(node_id), configuration_keys=(DRAINED,)
    )
    answer = connection.ask(DescribeConfigsRequest(resources=(resource,)))
    for row in answer.results:
        _expect(f"broker {node_id}", row.error_code, row.error_message)
    return any(config.value == "true" for row in answer.results for config in row.configs)


def _expect(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ClientError(f"{what}: {message or ErrorCode(code).name.lower().replace('_', ' ')}")
