"""Logins at a gateway: those that fail slowly leave room for the others."""

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
from penstock.server.gateway.logins import LoginQuestion
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


class Gateway:
    """What callers need of a gateway."""

    def __init__(self) -> None:
        self.pages = SlowNode()


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
