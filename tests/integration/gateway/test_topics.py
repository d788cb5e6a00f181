"""Topics over REST, and what every route has in common: validation, errors, the alias."""

from typing import Any

import pytest

from tests.integration.gateway.conftest import RestClient


def test_a_topic_is_created_described_listed_and_deleted(rest: RestClient) -> None:
    created = rest("POST", "/v1/topics", {"name": "t1", "partitions": 3, "config": {"retention.ms": 1000}})

    assert created.status_code == 201
    shown = created.json()
    assert (shown["name"], shown["partitions"], shown["replication_factor"]) == ("t1", 3, 1)
    assert shown["config"] == {"retention.ms": "1000"}
    assert [one["partition"] for one in shown["partition_details"]] == [0, 1, 2]
    assert rest("GET", "/v1/topics/t1").json() == shown
    assert "t1" in [one["name"] for one in rest("GET", "/api/v1/topics").json()["topics"]]
    assert rest("DELETE", "/v1/topics/t1").status_code == 204
    assert rest("GET", "/v1/topics/t1").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"partitions": 1}, "name"),
        ({"name": "a", "partitions": "many"}, "partitions"),
        ({"name": "a", "partitions": 0}, "partitions"),
        ({"name": "a", "colour": 1}, "colour"),
        ({"name": "a", "config": {"retention.ms": []}}, "config[...]"),
        ({"name": "no good"}, "name"),
        ({"name": "a", "replication_factor": 9}, "replication_factor"),
        ({"name": "a", "config": {"no.such": 1}}, "config"),
    ],
)
def test_an_error_names_the_field(rest: RestClient, body: dict[str, Any], field: str) -> None:
    response = rest("POST", "/v1/topics", body)

    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["field"] == field


def test_a_topic_exists_once(rest: RestClient) -> None:
    rest("POST", "/v1/topics", {"name": "once"})
    again = rest("POST", "/v1/topics", {"name": "once"})

    assert (again.status_code, again.json()["code"]) == (409, "TOPIC_ALREADY_EXISTS")


def test_what_is_no_route_is_an_error(rest: RestClient) -> None:
    assert rest("GET", "/v1/nowhere").status_code == 404
    assert rest("PUT", "/v1/topics", {}).headers["allow"] == "GET, POST"
    assert rest("POST", "/v1/topics", b"{").json()["detail"].startswith("this is not JSON")
    assert rest("POST", "/v1/topics", b"[" * 90_000).status_code == 400
    assert rest("POST", "/v1/topics", b" " * 100_001).status_code == 413
    assert rest("GET", "/v1/topics?colour=1").json()["field"] == "colour"


def test_the_node_and_its_cluster_are_shown(rest: RestClient) -> None:
    assert rest("GET", "/v1/admin/health").json() == {"status": "ok"}
    assert b"penstock_" in rest("GET", "/v1/admin/metrics").content
    assert [one["id"] for one in rest("GET", "/v1/admin/cluster").json()["brokers"]] == [1]
    assert "/v1/topics/{topic}" in rest("GET", "/openapi.json").json()["paths"]
    assert "http" not in rest("GET", "/docs").text.replace("https", "http")
