"""The OpenAPI document against the application: whatever it allows, nothing is an internal error."""

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from penstock.server.http.openapi import openapi_document
from penstock.server.http.routes import FAMILIES
from tests.integration.gateway.conftest import RestClient

DOCUMENT: dict[str, Any] = openapi_document(FAMILIES)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# `make schemathesis` runs more of them.
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "12"))


def test_every_operation_has_its_own_id() -> None:
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]

    assert len(ids) == len(frozenset(ids))


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_no_request_is_an_internal_error(case: Any, rest: RestClient) -> None:
    arguments = case.as_transport_kwargs(base_url="http://rest")
    body = arguments.get("data")
    content = body.encode() if isinstance(body, str) else body
    if "json" in arguments:
        content = arguments["json"]
    path = arguments["url"].removeprefix("http://rest")
    try:
        response = rest(case.method, path, content, params=arguments.get("params") or None)
    except (UnicodeEncodeError, ValueError) as error:
        pytest.skip(f"httpx cannot send this: {error}")

    assert response.status_code < 500 or response.status_code in (501, 503), response.text
