"""Bodies of requests, bounded in size and in time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.types import Message, Receive

from penstock.server.gateway.memory import MemoryShare
from penstock.server.http.problem import Problem

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection in the middle of a request: nobody waits for a response."""


async def read_body(receive: Receive, bytes_max: int, seconds: float, memory: MemoryShare) -> bytes:
    """The whole body; Problem if it is too large, or not complete after `seconds`.

    It counts until `memory` ends; MemoryUsedUp if there is no room for it.
    """
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
            body = _content(message)
            memory.take(len(body))
            if not message.get("more_body", False):
                _check_size(len(body), bytes_max)
                return body
            parts, size = [body], len(body)
            while message.get("more_body", False):
                _check_size(size, bytes_max)
                message = await receive()
                part = _content(message)
                memory.take(len(part))
                parts.append(part)
                size += len(part)
    except TimeoutError:
        raise _overdue(seconds) from None
    _check_size(size, bytes_max)
    return b"".join(parts)


async def body_chunks(receive: Receive, seconds: float) -> AsyncIterator[bytes]:
    """The body as it arrives; Problem if nothing does for `seconds`."""
    is_more = True
    while is_more:
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise _overdue(seconds) from None
        is_more = message.get("more_body", False)
        yield _content(message)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; it is cancelled when the client closes the connection, which is ClientGone."""
    loop = asyncio.get_running_loop()
    gone, working = loop.create_task(until_gone(receive)), loop.create_task(work)
    try:
        await asyncio.wait([gone, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        gone.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection, or has its response."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _content(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    content: bytes = message.get("body", b"")
    return content


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise Problem(413, "Body too large", f"a body may have {bytes_max} bytes (rest.body_bytes_max)")


def _overdue(seconds: float) -> Problem:
    return Problem(408, "Request timeout", f"the body was not complete after {seconds:g} s")
