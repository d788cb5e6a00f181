"""One file per Kafka API: reads the request, calls a use case, writes the response.

Every module here registers its handler in `routes` when it is imported; `every_route` imports
them all. What is registered is what ApiVersions announces.
"""

import importlib
import pkgutil

from penstock.server.kafka.router import Router, routes


def every_route() -> Router:
    """The table with all handlers of this package in it."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return routes
