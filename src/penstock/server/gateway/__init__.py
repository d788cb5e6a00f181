"""The gateway: a process beside each node that serves REST, WebSocket and gRPC.

    REST, WebSocket ─► server/http ─┐
                                    ├─ backend ─ penstock.client.cluster ─► Kafka port of any broker
    gRPC ────────────► server/grpc ─┘

JSON, Protobuf and HTTP are parsed here, so that the loop that serves the log never waits for that. The
gateway holds nothing that matters: it translates each request to requests on the Kafka port, and finds
leaders and coordinators as any client does. If it dies, its connections are lost and nothing else; the
node starts it again (`node/gateway.py`).

    options   what a gateway is told by its node
    process   the main program of the child process
    backend   what the servers share: the cluster's client, limits, pages of the node
    memory    how much requests and responses may take of it
    leases    what clients have received and not settled
    pages     health, readiness and metrics, fetched from the node
    errors    Kafka's error codes as statuses of HTTP and gRPC

Left out: more than one gateway process per node.
"""
