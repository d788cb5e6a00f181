"""The table of Kafka's messages: one small file per API, and this register of them.

A module is imported when its API is first looked up, so that starting a node does not
pay for requests nobody sends. The version range stands here a second time, because
`ApiVersions` must be answered without importing everything; a test compares the two.

Left out: the requests that Kafka's brokers and controllers send to each other (Vote,
FetchSnapshot, BrokerRegistration, AlterPartition and their like). Penstock's nodes have a
protocol of their own for that. `WriteTxnMarkers` and the share-state requests are here,
because tools use them too.
"""

from penstock.core.protocol.messages.registry import APIS, Api, api, name_of

__all__ = ["APIS", "Api", "api", "name_of"]
