"""One file per Kafka API: read the request, ask a service, write the answer.

Importing this package registers every handler. What is registered is what ApiVersions
announces.
"""
