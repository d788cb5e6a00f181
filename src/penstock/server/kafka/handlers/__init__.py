"""One file per Kafka API: reads the request, calls a use case, writes the response.

A module has the name of its API in the message table, and registers its handler in `routes` when it
is imported: with the first request of that API, or by a thread when the node has opened its listeners,
so that clients of a node that starts do not wait for sixty of them. What has a module is what
ApiVersions announces.
"""

import pkgutil
from collections.abc import Mapping

from penstock.core.protocol.messages.registry import APIS
from penstock.server.kafka.router import Router, routes

_NO_STREAMS_GROUPS = (
    "Kafka Streams runs as a consumer group; Kafka returns UNSUPPORTED_VERSION with the feature off"
)
_SHARE_STATE = "Kafka's brokers send it to each other, for share groups"
# What Kafka's brokers announce and a node does not. A client that wants one of these raises its
# UnsupportedVersion before it sends anything, which is also what it makes of that error.
NOT_ANNOUNCED: Mapping[str, str] = {
    "InitializeShareGroupState": _SHARE_STATE,
    "ReadShareGroupState": _SHARE_STATE,
    "WriteShareGroupState": _SHARE_STATE,
    "DeleteShareGroupState": _SHARE_STATE,
    "ReadShareGroupStateSummary": _SHARE_STATE,
    "StreamsGroupHeartbeat": _NO_STREAMS_GROUPS,
    "StreamsGroupDescribe": _NO_STREAMS_GROUPS,
}


def every_route() -> Router:
    """The table with all handlers of this package in it, imported or not."""
    by_name = {api.module: api for api in APIS.values()}
    for module in pkgutil.iter_modules(__path__):
        routes.announce(by_name[module.name], f"{__name__}.{module.name}")
    return routes
