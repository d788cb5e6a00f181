"""Servers: each translates one protocol into use cases, and errors into its own codes.

    kafka/   the Kafka protocol
    http/    health, readiness and metrics

Servers do not know each other. What they share is below them: the broker's use cases, security,
and the TCP connections of the runtime.
"""
