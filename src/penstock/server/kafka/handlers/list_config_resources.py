"""ListConfigResources: what has settings (KIP-714, KIP-1142)."""

from collections.abc import Iterable, Iterator

from penstock.core.metadata import ConfigResourceType, MetadataImage
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseConfigResource,
)
from penstock.security import AclOperation
from penstock.server.kafka.config_resources import BROKER_LOGGER
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, collected
from penstock.server.kafka.router import routes

KINDS_SINCE = 1
ALL_KINDS = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


@routes.handles(ListConfigResourcesRequest)
def list_config_resources(request: ListConfigResourcesRequest, call: Request) -> Iterator[None]:
    kinds: tuple[int, ...] = (ConfigResourceType.CLIENT_METRICS,)
    if call.version >= KINDS_SINCE:
        kinds = tuple(dict.fromkeys(request.resource_types)) or ALL_KINDS
    code = ErrorCode.NONE
    rows: tuple[ListConfigResourcesResponseConfigResource, ...] = ()
    if not call.authorize(AclOperation.DESCRIBE_CONFIGS, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif any(kind not in ALL_KINDS for kind in kinds):
        code = ErrorCode.UNSUPPORTED_VERSION
    else:
        image = call.backend.controller.image
        rows = yield from collected(
            ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in _names(image, kind)
        )
    call.reply(
        ListConfigResourcesResponse(
            throttle_time_ms=call.charge_time(), error_code=code, config_resources=rows
        )
    )


def _names(image: MetadataImage, kind: int) -> Iterable[str]:
    """Every topic and broker; groups and client-metrics subscriptions only if they have settings."""
    if kind == ConfigResourceType.TOPIC:
        return image.topic_names()
    if kind in (ConfigResourceType.BROKER, BROKER_LOGGER):
        return [str(broker.node_id) for broker in image.live_brokers()]
    return image.configured(ConfigResourceType(kind))
