"""The Kafka door: frames in, use cases, frames out.

    pipe ── assembly ── connection ── route ── handler ── service
                            │                     │
                         replies  ◄── slot ◄── call.reply(…), now or later

A connection cuts its bytes into frames, reads each request's header and finds the route:
the handler that registered for that API and version. Handlers translate, and nothing
else; they run to their end on the loop. What must wait (a sync, a long poll, a rebalance)
keeps the call and replies later, and answers still leave in the order of the requests.

Produce and Fetch take the frame itself instead of a decoded message: record bytes go from
the receive buffer to the log, and from the log to the socket, without being copied.

ApiVersions is derived from the routes, so what is announced is what is served.

Left out: TLS and SASL, which come with security.
"""
