"""What uvicorn has to say, and what of it is a line of the node's log."""

import asyncio
import logging

import pytest

from penstock.server.http.rest_server import is_failure


def record_of(error: BaseException | None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, None)
    return logging.LogRecord(
        "uvicorn.error", logging.ERROR, "", 0, "Exception in ASGI application", (), exc_info
    )


@pytest.mark.parametrize(
    ("error", "is_one"), [(None, False), (ValueError("a defect"), True), (asyncio.CancelledError(), False)]
)
def test_requests_that_end_with_the_server_are_no_failures(error: BaseException | None, is_one: bool) -> None:
    assert is_failure(record_of(error)) is is_one
