"""Which failures are worth another try."""

import pytest

from penstock.core.protocol.error_codes import ErrorCode


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_what_heals_by_itself_is_retriable(code: ErrorCode) -> None:
    assert code.retriable


@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_what_stays_wrong_is_not(code: ErrorCode) -> None:
    assert not code.retriable
