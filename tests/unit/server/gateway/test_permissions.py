"""Every route of every server has a row in the table of permissions."""

from typing import get_args

from penstock.server.gateway.permissions import GRPC, OPEN, PAGES, REST, WEBSOCKET
from penstock.server.http import websocket
from penstock.server.http.app import OPEN_PATHS
from penstock.server.http.openapi import openapi_routes
from penstock.server.http.routes import FAMILIES
from penstock.server.http.server import OPEN_PAGES
from penstock.v1 import penstock_pb2


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    routes = {(operation.method, operation.path) for family in FAMILIES for operation in family}
    routes |= {("GET", route.path) for route in openapi_routes(FAMILIES)}  # type: ignore[attr-defined]
    assert set(REST) == routes
    frames = {kind.__struct_config__.tag for kind in get_args(websocket.TextEnqueue | websocket._Common)}
    assert set(WEBSOCKET) == frames
    assert set(GRPC) == {m.name for m in penstock_pb2.DESCRIPTOR.services_by_name["Penstock"].methods}


def test_nothing_is_open_but_health_and_readiness() -> None:
    assert {"/health", "/ready", "/v1/admin/health"} == OPEN_PATHS
    assert {path for path, needs in PAGES.items() if needs == OPEN} == OPEN_PAGES
    assert OPEN not in WEBSOCKET.values()
    assert OPEN not in GRPC.values()
