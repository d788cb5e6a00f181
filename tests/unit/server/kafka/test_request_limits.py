"""Every API has a limit, and a request beyond it a clear answer."""

import pytest

from penstock.core.protocol import APIS, Api, ErrorCode
from penstock.server.kafka.errors import error_response
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.request_limits import (
    ANY_SIZE,
    LIMITED_BYTES,
    REQUEST_LIMITS,
    WHOLE_BYTES_MAX,
    limit_of,
)

SERVED = [route.api for route in every_route().all()]


def test_every_api_that_is_served_has_a_limit_and_no_other() -> None:
    assert {api.name for api in SERVED} == REQUEST_LIMITS.keys()


def test_produce_alone_may_be_as_large_as_the_listener_allows() -> None:
    assert [name for name, limit in REQUEST_LIMITS.items() if limit.bytes_max == ANY_SIZE] == ["Produce"]
    assert max(limit.bytes_max for name, limit in REQUEST_LIMITS.items() if name != "Produce") <= 16 << 20


def test_what_is_not_judged_is_within_every_limit() -> None:
    assert min(limit.bytes_max for limit in REQUEST_LIMITS.values()) == LIMITED_BYTES
    # An entry takes a byte at least.
    assert min(limit.entries_max for limit in REQUEST_LIMITS.values()) >= WHOLE_BYTES_MAX


def test_the_route_of_an_api_knows_its_limit() -> None:
    assert {route.api.name: route.bytes_max for route in every_route().all()} == {
        api.name: limit_of(api).bytes_max for api in SERVED
    }


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_response_that_is_nothing_but_an_error_can_be_sent(api: Api) -> None:
    for version in api.versions:
        response = error_response(api, version, ErrorCode.INVALID_REQUEST, "too large")

        fields = {field.name for field in api.response.__schema__.fields if field.is_in(version)}
        assert (response is not None) == ("error_code" in fields)
        if response is not None:
            read = api.response.decode(response.encode(version), version)
            assert read.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
