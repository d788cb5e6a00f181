"""One file per Kafka API: reads the request, calls a use case, writes the response.

Every module here registers its handler in `routes` when it is imported; `every_route` imports
them all. What is registered is what ApiVersions announces.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from penstock.server.kafka.router import Router, routes

_NO_SHARE_GROUPS = "there are no share groups so far; Kafka returns UNSUPPORTED_VERSION with the feature off"
_NO_STREAMS_GROUPS = (
    "Kafka Streams runs as a consumer group; Kafka returns UNSUPPORTED_VERSION with the feature off"
)
_SHARE_STATE = "Kafka's brokers send it to each other, for share groups"
# What Kafka's brokers announce and a node does not. A client that wants one of these raises its
# UnsupportedVersion before it sends anything, which is also what it makes of that error.
NOT_ANNOUNCED: Mapping[str, str] = {
    "ShareGroupHeartbeat": _NO_SHARE_GROUPS,
    "ShareGroupDescribe": _NO_SHARE_GROUPS,
    "ShareFetch": _NO_SHARE_GROUPS,
    "ShareAcknowledge": _NO_SHARE_GROUPS,
    "DescribeShareGroupOffsets": _NO_SHARE_GROUPS,
    "AlterShareGroupOffsets": _NO_SHARE_GROUPS,
    "DeleteShareGroupOffsets": _NO_SHARE_GROUPS,
    "InitializeShareGroupState": _SHARE_STATE,
    "ReadShareGroupState": _SHARE_STATE,
    "WriteShareGroupState": _SHARE_STATE,
    "DeleteShareGroupState": _SHARE_STATE,
    "ReadShareGroupStateSummary": _SHARE_STATE,
    "StreamsGroupHeartbeat": _NO_STREAMS_GROUPS,
    "StreamsGroupDescribe": _NO_STREAMS_GROUPS,
}


def every_route() -> Router:
    """The table with all handlers of this package in it."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return routes
