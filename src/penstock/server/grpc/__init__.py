"""gRPC: the service `penstock.v1.Penstock`, with reflection and the health service.

    server         the port, its limits, reflection; health that follows the node's readiness
    service        one method per call
    publishing     Publish, PublishBatch and PublishStream
    subscriptions  Subscribe: what is on its way to a client, and what it has not settled
    message_proto  Protobuf messages as records, and records as Protobuf messages
    statuses       errors as statuses
    elements       fields with too many elements
    callers        who calls; the port's certificate
    calls          how many calls an address may have, and how long their messages may take
    message_memory memory of messages that are not complete
    gate           what those who are not known yet may open

It runs in the gateway process and only translates: what a call does is a request on the Kafka port, through
`penstock.client.cluster`. An element of a stream costs ten times what a message in it costs, so streams carry
batches where the client asks for it.

Nothing is buffered without a bound. PublishStream is not read while too many bytes are under way; Subscribe
takes nothing more while the client does not read, or has too many messages that it did not settle. A call
that is cancelled, or whose deadline has passed, ends where it waits.

Left out: groups in log mode that share partitions among their members; an Ack through another node makes
no room in a stream of this one before the lease ends.
"""
