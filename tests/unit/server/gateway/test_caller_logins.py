"""Logins at a gateway: those that fail slowly, and callers that stay, leave room for the others."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.client.cluster import ClusterError
from penstock.server.gateway.callers import (
    HOST_LOGINS_AT_ONCE,
    HOST_LOGINS_WAITING_MAX,
    Callers,
    Credentials,
    UnknownCaller,
)
from penstock.server.gateway.logins import LoginAnswer, LoginQuestion
from penstock.server.gateway.options import RestOptions
from penstock.server.gateway.pages import NodePage

HOST, SAME_NETWORK, OTHER = "2001:db8::1", "2001:db8::ffff", "10.0.0.9"


class SlowNode:
    """Says that everyone is nobody, when it is told to answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def put(self, _path: str, body: bytes) -> NodePage:
        self.asked.append(msgspec.json.decode(body, type=LoginQuestion).host)
        await self.answers.wait()
        return NodePage(401, "", b"")


class TrustingNode:
    """Believes everyone: the user is the first word behind the scheme."""

    def __init__(self) -> None:
        self.asked = 0

    async def put(self, _path: str, body: bytes) -> NodePage:
        self.asked += 1
        question = msgspec.json.decode(body, type=LoginQuestion)
        user = question.authorization.split()[1].partition(".")[0]
        return NodePage(200, "", msgspec.json.encode(LoginAnswer(user, b"statement", b"key", 60_000)))


class Gateway:
    """What callers need of a gateway."""

    def __init__(self, pages: Any = None, callers_max: int = 500) -> None:
        self.pages = pages or SlowNode()
        self.limits = RestOptions(callers_max=callers_max)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def acting_for(self, _caller: Any) -> "Gateway":
        return self

    async def close_connections(self) -> None:
        pass


def guess(number: int, host: str) -> Credentials:
    return Credentials(host, authorization=f"Bearer guess-{number}")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_host_that_fails_does_not_keep_others_from_logging_in() -> None:
    async def play() -> None:
        root: Any = Gateway()
        callers = Callers(root, "token")
        hosts = [HOST if number % 2 else SAME_NETWORK for number in range(HOST_LOGINS_WAITING_MAX)]
        async with asyncio.TaskGroup() as tasks:
            guesses = [
                tasks.create_task(_is_nobody(callers, guess(number, host)))
                for number, host in enumerate(hosts)
            ]
            await turns()
            assert len(root.pages.asked) == HOST_LOGINS_AT_ONCE
            with pytest.raises(ClusterError, match="too many callers"):
                await callers.identify(guess(1_000, HOST))

            other = tasks.create_task(_is_nobody(callers, guess(0, OTHER)))
            await turns()
            assert root.pages.asked[-1] == OTHER
            root.pages.answers.set()
        assert other.result()
        assert all(each.result() for each in guesses)
        # What one has failed with is asked again, and the host has its room back.
        assert await _is_nobody(callers, guess(0, HOST))

    asyncio.run(play())


async def _is_nobody(callers: Callers, credentials: Credentials) -> bool:
    with pytest.raises(UnknownCaller):
        await callers.identify(credentials)
    return True


def said(text: str, host: str = HOST) -> Credentials:
    return Credentials(host, authorization=text)


def test_a_caller_is_the_same_however_it_writes_its_authorization() -> None:
    async def play() -> None:
        root: Any = Gateway(TrustingNode())
        callers = Callers(root, "token")
        found = [
            await callers.identify(said(text))
            for text in ("Bearer alice.1", "bearer alice.1", "BEARER   alice.1 ", "Bearer \talice.1")
        ]
        other = await callers.identify(said("Bearer alice.2"))
        await callers.close()

        assert all(each is found[0] for each in found)
        assert other is not found[0]
        assert root.pages.asked == 2

    asyncio.run(play())


@pytest.mark.parametrize(
    ("crowd", "newcomer", "whose"),
    [
        ([("alice", f"10.0.0.{number}") for number in range(4)], ("alice", "10.0.1.1"), "of this user"),
        ([(f"user-{number}", HOST) for number in range(4)], ("bob", SAME_NETWORK), "of your address"),
    ],
)
def test_neither_a_user_nor_an_address_takes_all_places_of_callers(
    crowd: list[tuple[str, str]], newcomer: tuple[str, str], whose: str
) -> None:
    async def play() -> None:
        root: Any = Gateway(TrustingNode(), callers_max=8)
        callers = Callers(root, "token")
        served = [await callers.identify(said(f"Bearer {user}.0", host)) for user, host in crowd]
        for each in served:
            each.uses += 1
        user, host = newcomer
        with pytest.raises(ClusterError, match=f"4 callers {whose} are served already"):
            await callers.identify(said(f"Bearer {user}.1", host))
        for number in range(4):
            (await callers.identify(said(f"Bearer other-{number}.0", f"10.1.0.{number}"))).uses += 1
        with pytest.raises(ClusterError, match="8 callers are served already"):
            await callers.identify(said("Bearer late.0", "10.2.0.1"))
        # One that is idle gives way to another of its own.
        served[0].uses = 0
        assert (await callers.identify(said(f"Bearer {user}.1", host))).user == user
        assert callers.find(said(f"Bearer {crowd[0][0]}.0", crowd[0][1])) is None
        await callers.close()

    asyncio.run(play())
