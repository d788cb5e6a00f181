"""The table of errors of the gateway."""

import http

import grpc
import pytest

from penstock.core.protocol import ErrorCode
from penstock.server.gateway.errors import INTERNAL, STATUSES, UNAVAILABLE, status_of


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_code_has_a_status_of_both_protocols(code: ErrorCode) -> None:
    status = STATUSES[code]

    assert http.HTTPStatus(status.http)
    assert status.grpc in grpc.StatusCode.__members__


def test_what_is_over_after_a_while_says_so() -> None:
    retriable = [code for code in ErrorCode if code.retriable]

    assert [code for code in retriable if status_of(code).http < 400] == []
    assert status_of(ErrorCode.NOT_LEADER_OR_FOLLOWER) is UNAVAILABLE
    assert status_of(12_345) is INTERNAL
