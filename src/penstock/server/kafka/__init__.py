"""The Kafka server: frames in, use cases, frames out.

    TcpConnection ── FrameDecoder ── KafkaConnection ── Router ── handler ── use case
                                           │                         │
                                     ResponseQueue  ◄── request.reply(…), now or later

    listener           one address, its connections, and what they share
    connection         one client: frames in, responses out, limits
    frame_decoder      cuts bytes into frames
    request            one request, and its reply
    response_queue     responses in the order of the requests
    router             which handler serves which API and versions
    handlers/          one file per API
    backend            the use cases that handlers call
    fetch_sessions     incremental fetch sessions
    errors             from ErrorKind to Kafka's error codes
    node_addresses, partition_lookup, config_resources, response_rows   shared by handlers

A connection cuts its bytes into frames, reads each request's header and finds the route:
the handler that registered for that API and version. Handlers translate, and nothing
else; they run to their end on the loop. What must wait (a sync, a long poll, a rebalance)
keeps the request and replies later; responses still leave in the order of the requests.

Produce and Fetch take the frame itself instead of a decoded message: record bytes go from
the receive buffer to the log, and from the log to the socket, without being copied.

ApiVersions is derived from the routes, so what is announced is what is served.

Left out: TLS and SASL, which come with security.
"""
