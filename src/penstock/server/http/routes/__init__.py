"""The routes of the REST API, one module per family."""

from penstock.server.http.routes import admin, delays, dlq, groups, messages, publish, topics

FAMILIES = (
    publish.OPERATIONS,
    delays.OPERATIONS,
    messages.OPERATIONS,
    topics.OPERATIONS,
    groups.OPERATIONS,
    dlq.OPERATIONS,
    admin.OPERATIONS,
)
