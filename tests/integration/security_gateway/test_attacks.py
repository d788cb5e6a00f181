"""What strangers try at the gateway of a secured node: paths, headers, smuggled requests, forgeries."""

import socket
from pathlib import Path

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.v1 import penstock_pb2_grpc
from tests.integration.security_gateway.conftest import ENVIRONMENT_SECRET, SecuredGateway

NOBODY, NOT_THERE = 401, 404


def raw(gate: SecuredGateway, request: bytes, *, door: str = "http", responses: int = 1) -> bytes:
    """What comes back for bytes that no client library would send."""
    host, _, port = str(gate.node.ready[door]).rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        while received.count(b"HTTP/1.1 ") < responses and (piece := connection.recv(65_536)):
            received += piece
    return received


def statuses(received: bytes) -> list[int]:
    return [int(each[:3]) for each in received.split(b"HTTP/1.1 ")[1:]]


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: node", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/v1/../metrics",
        "/health/../metrics",
        "/health/..%2fmetrics",
        "/health%2f..%2fmetrics",
        "/%6detrics",
        "//metrics",
        "/metrics/",
        "/metrics?x=/health",
        "/health/",
        "/health;/metrics",
        "/v1/topics",
        "/api/v1/topics",
        "/api/v1/../../metrics",
        "/v1/gateway/login",
        "/docs",
        "/openapi.json",
        "http://other/metrics",
        "*",
    ],
)
def test_no_way_of_writing_a_path_leads_past_the_login(secured_gateway: SecuredGateway, path: str) -> None:
    for door in ("http", "metrics"):
        (status,) = statuses(raw(secured_gateway, get(path), door=door))
        assert status in (NOBODY, NOT_THERE, 400, 405), (door, status)


def test_an_open_route_before_a_secured_one_on_a_connection_opens_nothing(
    secured_gateway: SecuredGateway,
) -> None:
    key = secured_gateway.key("admin")
    served = get("/v1/topics", f"Authorization: Bearer {key}")
    pipelined = get("/health") + get("/v1/topics") + served + get("/v1/topics")

    assert statuses(raw(secured_gateway, pipelined, responses=4)) == [200, NOBODY, 200, NOBODY]


@pytest.mark.parametrize(
    "headers",
    [
        ("X-Penstock-User: admin",),
        ("Penstock-Statement: AAAA.AAAA",),
        ("X-Forwarded-User: admin", "X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1"),
        ("X-Original-URL: /health", "X-Rewrite-URL: /health"),
        ("Authorization: Bearer a", "Authorization: Bearer b"),
        ("Authorization: Bearer a", "X-API-Key: b"),
        ("Authorization:",),
        ("Authorization: Bearer " + "x" * 20_000,),
        ("Sec-WebSocket-Protocol: bearer, admin",),
        ("Cookie: authorization=admin",),
    ],
    ids=lambda headers: headers[0][:30],
)
def test_no_header_makes_a_stranger_somebody(
    secured_gateway: SecuredGateway, headers: tuple[str, ...]
) -> None:
    for door, path in (("http", "/v1/topics"), ("http", "/metrics"), ("metrics", "/metrics")):
        received = raw(secured_gateway, get(path, *headers), door=door)
        # One that is too long may end the connection.
        assert statuses(received) in ([NOBODY], [400], [431], []), (door, received[:200])


@pytest.mark.parametrize(
    "request_bytes",
    [
        (
            b"POST /health HTTP/1.1\r\nHost: n\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        b"POST /health HTTP/1.1\r\nHost: n\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: n\r\nX: a\r\n Authorization: Bearer b\r\n\r\n",
    ],
    ids=["both lengths", "two lengths", "folded"],
)
def test_a_request_that_may_be_read_in_two_ways_smuggles_no_other(
    secured_gateway: SecuredGateway, request_bytes: bytes
) -> None:
    smuggled = request_bytes + get("/v1/topics")

    assert 200 not in statuses(raw(secured_gateway, smuggled, responses=2))[1:]


def test_every_error_has_the_headers_that_browsers_obey(secured_gateway: SecuredGateway) -> None:
    for path in ("/v1/topics", "/nothing", "/docs", "/openapi.json", "/health", "/metrics", "/v1/ws"):
        for door in ("http", "metrics"):
            head = raw(secured_gateway, get(path), door=door).partition(b"\r\n\r\n")[0].lower()
            for name in (b"x-content-type-options: nosniff", b"referrer-policy: no-referrer"):
                assert name in head, (door, path, head)
            assert b"cache-control: no-store" in head, (door, path, head)
            assert b"content-security-policy:" in head, (door, path, head)
            assert b"access-control-" not in head


def test_a_page_of_another_site_may_not_ask_first(secured_gateway: SecuredGateway) -> None:
    asked = raw(
        secured_gateway,
        b"OPTIONS /v1/topics HTTP/1.1\r\nHost: n\r\nOrigin: https://evil.example\r\n"
        b"Access-Control-Request-Method: POST\r\n\r\n",
    )

    assert b"access-control-" not in asked.lower()
    assert statuses(asked)[0] in (NOBODY, 403, 405)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_browser_asks_for_a_page_of_another_site_is_refused(
    secured_gateway: SecuredGateway, site: str
) -> None:
    gate, key = secured_gateway, secured_gateway.key("admin")
    poll = "/v1/groups/asked-elsewhere/poll?member_id=m&topics=asked-elsewhere"
    gate.ask("POST", "/v1/topics", key, json={"name": "asked-elsewhere"})
    publish = "/v1/topics/asked-elsewhere/publish"
    elsewhere, here, typed = ({"sec-fetch-site": each} for each in (site, "same-origin", "none"))

    assert gate.ask("GET", poll, key, headers=elsewhere).status_code == 403
    assert gate.ask("POST", publish, key, json={"value": "x"}, headers=elsewhere).status_code == 403
    for headers in (here, typed):
        assert gate.ask("GET", poll, key, headers=headers).status_code == 200
        assert gate.ask("POST", publish, key, json={"value": "x"}, headers=headers).status_code == 200
    for door in ("http", "metrics"):
        login = f"Authorization: Bearer {key}"
        asked = get("/metrics", login, f"Sec-Fetch-Site: {site}")
        assert statuses(raw(gate, asked, door=door)) == [403]
    assert gate.ask("GET", "/health", headers=elsewhere).status_code == 200


def test_a_websocket_takes_no_login_from_its_address_or_its_subprotocols(
    secured_gateway: SecuredGateway,
) -> None:
    key = secured_gateway.key("admin")
    url = secured_gateway.url.replace("http", "ws") + "/v1/ws"
    for path in (f"?access_token={key}", f"?authorization=Bearer%20{key}", f"?api_key={key}"):
        with pytest.raises(InvalidStatus) as refused:
            connect(url + path)
        assert refused.value.response.status_code == NOBODY
    with pytest.raises(InvalidStatus) as refused:
        connect(url, subprotocols=["bearer", key])  # type: ignore[list-item]
    assert refused.value.response.status_code == NOBODY


def test_a_grpc_call_that_says_twice_who_it_is_is_nobody(secured_gateway: SecuredGateway) -> None:
    key = secured_gateway.key("admin")
    doubled = [("authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")]
    both = [("authorization", f"Bearer {key}"), ("x-api-key", key)]
    with secured_gateway.channel() as channel:
        stub = penstock_pb2_grpc.PenstockStub(channel)  # type: ignore[no-untyped-call]
        for metadata in (doubled, both, [("penstock-statement", "AAAA.AAAA")]):
            with pytest.raises(grpc.RpcError) as refused:
                stub.ListTopics(Empty(), metadata=metadata, timeout=30)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_children_of_a_node_do_not_get_what_its_environment_has(secured_gateway: SecuredGateway) -> None:
    secured_gateway.ask("GET", "/health")
    children = _descendants(secured_gateway.node.pid)
    assert children

    secret = ENVIRONMENT_SECRET.encode()
    assert secret in Path(f"/proc/{secured_gateway.node.pid}/environ").read_bytes()
    for child in children:
        assert secret not in Path(f"/proc/{child}/environ").read_bytes()


def _descendants(pid: int) -> list[int]:
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [each for child in found for each in _descendants(child)]
