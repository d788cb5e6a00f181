"""Every WebSocket frame, for nobody, a user without rights, with them, with all but one, a super user."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.server.gateway.permissions import IDENTITY, WEBSOCKET
from tests.integration.security_gateway.conftest import RightsMatrix, SecuredGateway

TOPIC, GROUP = "ws-matrix", "ws-matrix"
DENIED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"})
UNAUTHORIZED: Final = 401
ATTEMPTS_MAX = 20
NAMES: Final = {"topic": "ws-", "group": "ws-"}


class FrameClient:
    """One connection, by text or binary frames."""

    def __init__(self, socket: Any, *, is_binary: bool) -> None:
        self._socket = socket
        self._is_binary = is_binary
        self._last_id = 0

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a frame; returns its reply."""
        self._last_id += 1
        frame = {"op": op, "id": self._last_id, **fields}
        self._socket.send(msgspec.msgpack.encode(frame) if self._is_binary else json.dumps(frame))
        while True:
            reply = self.receive()
            if reply.get("id") == self._last_id:
                return reply

    def receive(self) -> dict[str, Any]:
        content = self._socket.recv(timeout=40)
        found = json.loads(content) if isinstance(content, str) else msgspec.msgpack.decode(content)
        assert isinstance(found, dict)
        return found


def codes_in(reply: Any) -> set[str]:
    """Every code in a reply and what it is made of."""
    if isinstance(reply, list):
        return set().union(*map(codes_in, reply))
    if not isinstance(reply, dict):
        return set()
    found = {reply["code"]} if "code" in reply else set()
    return found.union(*(codes_in(each) for each in reply.values()))


Perform = Callable[[FrameClient, "Preparation"], set[str]]


class Preparation:
    """What the super user does so that there is something to ask for."""

    def __init__(self, gate: SecuredGateway, key: str) -> None:
        self._gate, self._key = gate, key

    def publish(self) -> None:
        path = f"/v1/topics/{TOPIC}/publish"
        made = self._gate.ask("POST", path, self._key, json={"value": "x"})
        assert made.status_code == 200, made.text

    @contextmanager
    def receipt(self) -> Iterator[str]:
        """Of a message that is leased meanwhile."""
        with opened(self._gate, self._key, is_binary=False) as client:
            for _ in range(ATTEMPTS_MAX):
                self.publish()
                reply = client.ask("dequeue", topic=TOPIC, group=GROUP, wait_ms=1_000, lease_ms=600_000)
                if reply["messages"]:
                    break
            yield reply["messages"][0]["receipt"]


def enqueue(client: FrameClient, _: Preparation) -> set[str]:
    value = b"x" if client._is_binary else "x"
    return codes_in(client.ask("enqueue", topic=TOPIC, message={"value": value}))


def dequeue(client: FrameClient, _: Preparation) -> set[str]:
    return codes_in(client.ask("dequeue", topic=TOPIC, group=GROUP))


def subscribe(client: FrameClient, prepared: Preparation) -> set[str]:
    reply = client.ask("subscribe", topic=TOPIC, group="ws-subscribers", credits=1)
    if reply["op"] != "subscribed":
        return codes_in(reply)
    prepared.publish()
    prepared.publish()
    return codes_in(client.receive())


def credit(client: FrameClient, _: Preparation) -> set[str]:
    """A subscription without rights is over: there is none to give credits to, which is no refusal."""
    number = client.ask("subscribe", topic=TOPIC, group=GROUP)["subscription"]
    return codes_in(client.ask("credit", subscription=number + 1, credits=1))


def unsubscribe(client: FrameClient, _: Preparation) -> set[str]:
    number = client.ask("subscribe", topic=TOPIC, group=GROUP)["subscription"]
    return codes_in(client.ask("unsubscribe", subscription=number))


def settle(op: str) -> Perform:
    def made(client: FrameClient, prepared: Preparation) -> set[str]:
        with prepared.receipt() as receipt:
            return codes_in(client.ask(op, group=GROUP, receipts=[receipt]))

    return made


def ping(client: FrameClient, _: Preparation) -> set[str]:
    reply = client.ask("ping")
    assert reply["op"] == "pong"
    return set()


FRAMES: Final[dict[str, Perform]] = {
    "enqueue": enqueue,
    "dequeue": dequeue,
    "subscribe": subscribe,
    "credit": credit,
    "unsubscribe": unsubscribe,
    **{op: settle(op) for op in ("ack", "nack", "release", "renew")},
    "ping": ping,
}


@contextmanager
def opened(gate: SecuredGateway, key: str, *, is_binary: bool) -> Iterator[FrameClient]:
    url = gate.url.replace("http", "ws") + "/v1/ws"
    with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        client = FrameClient(socket, is_binary=is_binary)
        assert client.receive()["op"] == "welcome"
        yield client


@pytest.fixture(scope="module")
def matrix(secured_gateway: SecuredGateway) -> RightsMatrix:
    made = RightsMatrix(secured_gateway, "ws", NAMES)
    made.create_topic(TOPIC)
    return made


def test_every_frame_is_sent_by_these_tests() -> None:
    assert FRAMES.keys() == WEBSOCKET.keys()


def test_nobody_sends_any_frame(secured_gateway: SecuredGateway) -> None:
    url = secured_gateway.url.replace("http", "ws")
    for path in ("/v1/ws", "/api/v1/ws", "/v1/ws?consumer=c"):
        with pytest.raises(InvalidStatus) as refused:
            connect(url + path)
        assert refused.value.response.status_code == UNAUTHORIZED


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("op", list(WEBSOCKET))
def test_a_frame_is_for_those_who_have_its_rights(
    secured_gateway: SecuredGateway, matrix: RightsMatrix, op: str, is_binary: bool
) -> None:
    prepared = Preparation(secured_gateway, matrix.admins_key)

    def outcome(key: str) -> set[str]:
        with opened(secured_gateway, key, is_binary=is_binary) as client:
            return FRAMES[op](client, prepared)

    needs = WEBSOCKET[op]
    if needs == IDENTITY:
        assert not outcome(matrix.nobodys_key) & DENIED
    else:
        assert outcome(matrix.nobodys_key) & DENIED
        assert outcome(matrix.key_elsewhere(needs)) & DENIED
        for key in matrix.keys_lacking_one(needs):
            assert outcome(key) & DENIED
        assert outcome(matrix.key_with(needs)) == set()
        assert outcome(matrix.admins_key) == set()
    assert not outcome(matrix.admins_key) & DENIED
