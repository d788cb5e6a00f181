"""The little of HTTP/1.1 that is spoken here, as bytes in and bytes out."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

TEXT = "text/plain; charset=utf-8"
END_OF_HEAD = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """A page as it is now."""

    status: int
    body: bytes
    content_type: str = TEXT


Page: TypeAlias = Callable[[], Answer]


def respond(head: bytes, pages: Mapping[str, Page]) -> bytes:
    """The whole response to a request whose head is complete."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return response(Answer(400, b"this is not HTTP\n"))
    method, target = words[0], words[1].split(b"?", 1)[0].decode("latin-1")
    if method not in (b"GET", b"HEAD"):
        return response(Answer(405, b"only GET is answered here\n"))
    page = pages.get(target)
    if page is None:
        known = ", ".join(sorted(pages))
        return response(Answer(404, f"there is no such page; there are {known}\n".encode()))
    return response(page(), with_body=method == b"GET")


def response(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (answer.body if with_body else b"")
