"""Every REST route, for nobody, without rights, with all but one, with all, elsewhere, a super user."""

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.core.queues import REDRIVE_GROUP
from penstock.server.gateway.permissions import IDENTITY, OPEN, PAGES, REST, Right
from tests.integration.security_gateway.conftest import RightsMatrix, SecuredGateway
from tests.support.clusters import until

TOPIC, GROUP, SINK = "matrix", "matrix", "matrix"
NAMES_ALLOWED = {"topic": TOPIC, "group": GROUP, "transactional_id": SINK}
NOBODY, FORBIDDEN, HIDDEN = 401, 403, 404
POLLS_MAX = 20
# What is not there, and what others may not see, is told so.
ABSENT = {("DELETE", "/v1/delays/{delay_id}"): 409}
# What the rights for a group have to name, where the caller does not choose the group.
GROUPS = {("GET", "/v1/topics/{topic}/dlq"): REDRIVE_GROUP}
Prepared = tuple[str, Any]


class Preparation:
    """The super user, who sees to it that a request can succeed."""

    def __init__(self, gate: SecuredGateway, key: str) -> None:
        self._gate = gate
        self._key = key
        self._numbers = itertools.count()

    def name(self) -> str:
        return f"{TOPIC}-{next(self._numbers)}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        response = self._gate.ask(method, path, self._key, json=body)
        assert response.status_code < 300, (path, response.text)
        return response.json() if response.content else None

    def topic(self) -> str:
        """A topic of its own, with a message."""
        name = self.name()
        self.ask("POST", "/v1/topics", {"name": name})
        self.ask("POST", f"/v1/topics/{name}/publish", {"value": "x"})
        return name

    def delay(self) -> str:
        later = {"value": "x", "delay_ms": 3_600_000}
        return str(self.ask("POST", f"/v1/topics/{TOPIC}/publish", later)["delay_id"])

    def receipts(self, topic: str) -> list[str]:
        """Of messages that are leased in the group."""
        for _ in range(POLLS_MAX):
            self.ask("POST", f"/v1/topics/{topic}/publish", {"value": "x"})
            polled = self.ask("GET", f"/v1/groups/{GROUP}/poll?member_id=admin&topics={topic}&max=1")
            if polled["messages"]:
                return [each["receipt"] for each in polled["messages"]]
        raise AssertionError("there is nothing to receive")

    def dead_letter(self) -> str:
        """A topic with a message that was given up."""
        name = self.topic()
        self.ask("POST", f"/v1/groups/{GROUP}/nack", {"receipts": self.receipts(name), "reject": True})
        until(lambda: self.ask("GET", f"/v1/topics/{name}/dlq")["dead_letters"], "it is a dead letter")
        return name

    def member(self, mode: str = "queue") -> tuple[str, str]:
        """A group, and a member of it."""
        group = self.name()
        body = {"topics": [TOPIC], "mode": mode, "member_id": "m"}
        joined = self.ask("POST", f"/v1/groups/{group}/join", body)
        return group, joined["member_id"]


def settled(verb: str) -> Callable[[Preparation], Prepared]:
    return lambda made: (f"/v1/groups/{GROUP}/{verb}", {"receipts": made.receipts(TOPIC)})


def of_member(verb: str) -> Callable[[Preparation], Prepared]:
    def prepare(made: Preparation) -> Prepared:
        group, member = made.member()
        return f"/v1/groups/{group}/{verb}", {"member_id": member}

    return prepare


def commit(made: Preparation) -> Prepared:
    group, member = made.member("log")
    position = {"topic": TOPIC, "partition": 0, "offset": 0}
    return f"/v1/groups/{group}/commit", {"member_id": member, "offsets": [position]}


def always(path: str, body: Any = None) -> Callable[[Preparation], Prepared]:
    return lambda _: (path, body)


# Requests that succeed, if they are allowed.
REQUESTS: dict[tuple[str, str], Callable[[Preparation], Prepared]] = {
    ("POST", "/v1/topics/{topic}/publish"): always(f"/v1/topics/{TOPIC}/publish", {"value": "x"}),
    ("POST", "/v1/topics/{topic}/batch"): always(f"/v1/topics/{TOPIC}/batch", {"messages": [{"value": "x"}]}),
    ("POST", "/produce"): always("/produce", {"topic": TOPIC, "value": "x"}),
    ("DELETE", "/v1/delays/{delay_id}"): lambda made: (f"/v1/delays/{made.delay()}", None),
    ("POST", "/v1/topics"): lambda made: ("/v1/topics", {"name": made.name()}),
    ("GET", "/v1/topics/{topic}"): always(f"/v1/topics/{TOPIC}"),
    ("DELETE", "/v1/topics/{topic}"): lambda made: (f"/v1/topics/{made.topic()}", None),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/messages"): always(
        f"/v1/topics/{TOPIC}/partitions/0/messages"
    ),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/messages/{offset}"): lambda made: (
        f"/v1/topics/{made.topic()}/partitions/0/messages/0",
        None,
    ),
    ("GET", "/v1/messages/{topic}/{partition}/{offset}"): lambda made: (
        f"/v1/messages/{made.topic()}/0/0",
        None,
    ),
    ("GET", "/consume"): always(f"/consume?topic={TOPIC}&partition=0&offset=0"),
    ("POST", "/subscribe"): lambda made: ("/subscribe", {"group": made.name(), "topics": [TOPIC]}),
    ("POST", "/v1/groups/{group}/join"): lambda made: (
        f"/v1/groups/{made.name()}/join",
        {"topics": [TOPIC]},
    ),
    ("POST", "/v1/groups/{group}/leave"): of_member("leave"),
    ("POST", "/v1/groups/{group}/heartbeat"): of_member("heartbeat"),
    ("GET", "/v1/groups/{group}/poll"): always(f"/v1/groups/{GROUP}/poll?member_id=m&topics={TOPIC}"),
    ("POST", "/v1/groups/{group}/commit"): commit,
    ("POST", "/v1/groups/{group}/ack"): settled("ack"),
    ("POST", "/v1/groups/{group}/nack"): settled("nack"),
    ("POST", "/v1/groups/{group}/renew"): settled("renew"),
    ("GET", "/v1/groups/{group}"): lambda made: (f"/v1/groups/{made.member()[0]}", None),
    ("GET", "/v1/topics/{topic}/dlq"): lambda made: (f"/v1/topics/{made.dead_letter()}/dlq", None),
    ("POST", "/v1/topics/{topic}/dlq/redrive"): lambda made: (
        f"/v1/topics/{made.dead_letter()}/dlq/redrive",
        None,
    ),
    ("PUT", "/v1/batches/{batch:path}"): lambda made: (
        f"/v1/batches/{SINK}/{made.name()}",
        {"transactions": []},
    ),
}
# Whether a response that is made of others says in one of them that the caller may not.
REFUSED_INSIDE = '"status":403'


class RestCaller:
    """Asks for one route again and again, each time as somebody else."""

    def __init__(self, gate: SecuredGateway, made: Preparation, route: tuple[str, str]) -> None:
        self._gate = gate
        self._made = made
        self._route = route

    def ask(self, key: str | None) -> int:
        """The status; that of a part of the response if it was refused there."""
        method, path = self._route
        url, body = REQUESTS.get(self._route, always(path))(self._made)
        more = {} if body is None else {"json": body}
        response = self._gate.ask(method, url, key, **more)
        if REFUSED_INSIDE in response.text.replace(" ", ""):
            return FORBIDDEN
        return response.status_code


@pytest.fixture(scope="module")
def matrix(secured_gateway: SecuredGateway) -> RightsMatrix:
    made = RightsMatrix(secured_gateway, "rest", NAMES_ALLOWED)
    made.create_topic(TOPIC)
    return made


@pytest.fixture(scope="module")
def preparation(secured_gateway: SecuredGateway, matrix: RightsMatrix) -> Preparation:
    return Preparation(secured_gateway, matrix.admins_key)


def test_every_route_that_takes_rights_has_a_request_here() -> None:
    # Those without parameters need none.
    needed = {route for route, needs in REST.items() if not isinstance(needs, str)}
    assert needed - REQUESTS.keys() == {("GET", "/metrics"), ("GET", "/v1/admin/metrics")}


@pytest.mark.parametrize(("method", "path"), list(REST), ids=str)
def test_a_route_is_for_those_who_have_its_rights(
    secured_gateway: SecuredGateway, matrix: RightsMatrix, preparation: Preparation, method: str, path: str
) -> None:
    route = method, path
    needs, caller = REST[route], RestCaller(secured_gateway, preparation, route)
    if needs == OPEN:
        assert caller.ask(None) == 200
        return
    rights = matrix.naming(group=GROUPS[route]) if route in GROUPS else matrix

    assert caller.ask(None) == NOBODY
    without = caller.ask(matrix.nobodys_key)
    if needs == IDENTITY:
        assert 200 <= without < 300
    else:
        refusals = {ABSENT.get(route, FORBIDDEN), HIDDEN}
        assert without in refusals
        if needs != (Right(AclOperation.DESCRIBE, ResourceType.CLUSTER),):
            assert caller.ask(matrix.key_elsewhere(needs)) in refusals
        for key, missing in zip(rights.keys_lacking_one(needs), needs, strict=False):
            assert caller.ask(key) in refusals, f"served without {missing}"
        assert 200 <= caller.ask(rights.key_with(needs)) < 300
    assert 200 <= caller.ask(matrix.admins_key) < 300


@pytest.mark.parametrize("path", list(PAGES))
def test_a_page_of_the_node_is_for_those_who_have_its_rights(
    secured_gateway: SecuredGateway, matrix: RightsMatrix, path: str
) -> None:
    def ask(key: str | None) -> int:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        url = f"http://{secured_gateway.node.ready['metrics']}{path}"
        return httpx.get(url, headers=headers, timeout=40).status_code

    needs = PAGES[path]
    if needs == OPEN:
        assert ask(None) == ask(matrix.nobodys_key) == 200
        return
    assert ask(None) == NOBODY
    assert ask(matrix.nobodys_key) == FORBIDDEN
    assert ask(matrix.key_with((Right(AclOperation.ALTER, ResourceType.TOPIC),))) == FORBIDDEN
    assert ask(matrix.key_with(needs)) == ask(matrix.admins_key) == 200


def test_a_delay_is_cancelled_by_those_who_may_write_to_its_topic(
    secured_gateway: SecuredGateway, matrix: RightsMatrix
) -> None:
    gate, needs = secured_gateway, REST["DELETE", "/v1/delays/{delay_id}"]
    later = {"value": "x", "delay_ms": 3_600_000}
    made = gate.ask("POST", "/v1/topics/matrix/publish", matrix.admins_key, json=later).json()
    path = f"/v1/delays/{made['delay_id']}"

    hidden = [gate.ask("DELETE", path, key) for key in (matrix.nobodys_key, matrix.key_elsewhere(needs))]
    cancelled = gate.ask("DELETE", path, matrix.key_with(needs))
    absent = gate.ask("DELETE", path, matrix.admins_key)

    assert cancelled.status_code == 204, cancelled.text
    assert [each.json() for each in hidden] == [absent.json()] * 2


def test_listings_show_no_names_to_those_who_may_not_see_them(
    secured_gateway: SecuredGateway, matrix: RightsMatrix
) -> None:
    gate = secured_gateway
    matrix.create_topic("hidden-by-rights")
    polled = "/v1/groups/hidden-by-rights/poll?member_id=m&topics=hidden-by-rights"
    assert gate.ask("GET", polled, matrix.admins_key).status_code == 200
    later = {"value": "x", "delay_ms": 3_600_000}
    gate.ask("POST", "/v1/topics/hidden-by-rights/publish", matrix.admins_key, json=later)

    for method, path in REST:
        if method == "GET" and REST[method, path] == IDENTITY:
            assert "hidden-by-rights" not in gate.ask("GET", path, matrix.nobodys_key).text, path
    for path in ("/v1/topics", "/v1/delays"):
        assert "hidden-by-rights" in gate.ask("GET", path, matrix.admins_key).text, path


@pytest.mark.parametrize("path", ["/v1/topics/{}", "/v1/topics/{}/partitions/0/messages", "/v1/groups/{}"])
def test_what_may_not_be_seen_is_refused_as_what_is_not_there(
    secured_gateway: SecuredGateway, matrix: RightsMatrix, path: str
) -> None:
    gate = secured_gateway
    matrix.create_topic("is-there")

    denied = gate.ask("GET", path.format("is-there"), matrix.nobodys_key)
    absent = gate.ask("GET", path.format("not-there"), matrix.nobodys_key)

    assert denied.status_code in (FORBIDDEN, HIDDEN)
    assert denied.text.replace("is-there", "not-there") == absent.text
    assert denied.status_code == absent.status_code
