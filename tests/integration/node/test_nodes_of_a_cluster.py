"""Nodes in processes of their own: what they say while they wait, and when others are gone."""

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.node.options import PortReservations
from penstock.runtime import Address
from tests.support.clusters import ClusterProcesses, cluster_of, until
from tests.support.nodes import NodeProcess

NO_CONTROLLER = (503, '{"status":"not ready","reason":"no controller"}\n')


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[tuple[NodeProcess, str]]:
    """A node whose second voter never comes, and its HTTP address."""
    wanted = {name: Address("127.0.0.1", 0) for name in ("http", "one", "two")}
    with closing(PortReservations(wanted)) as ports:
        voters = f"1@{ports['one']},2@{ports['two']}"
        settings = ("node.id=1", f"cluster.voters={voters}", f"listen.http={ports['http']}")
        node = NodeProcess(tmp_path / "data", *settings)
        node.launch()
        yield node, str(ports["http"])
        node.kill()


def test_a_node_that_waits_for_voters_says_so_and_is_alive_but_not_ready(
    lonely: tuple[NodeProcess, str],
) -> None:
    node, http = lonely
    until(lambda: "cluster.waiting_for_voters" in node.said(), "it says that it waits")

    readiness, health = page(http, "/ready"), page(http, "/health")

    assert readiness == (503, '{"status":"starting"}\n')
    assert health == (200, '{"status":"ok","reason":"no controller"}\n')
    assert '"voters":"2 at 127.0.0.1:' in node.said()


def test_a_node_that_waits_for_voters_can_be_stopped(lonely: tuple[NodeProcess, str]) -> None:
    node, _ = lonely
    until(lambda: "cluster.waiting_for_voters" in node.said(), "it says that it waits")

    assert node.stop() == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_node_without_a_controller_is_not_ready_until_there_is_one(cluster: ClusterProcesses) -> None:
    survivor = 1
    http = str(cluster.nodes[survivor].ready["http"])
    until(lambda: page(http, "/ready") == (200, '{"status":"ready"}\n'), "it is ready")

    for number in (2, 3):
        cluster.nodes[number].kill()
    until(lambda: page(http, "/ready") == NO_CONTROLLER, "it says why it is not ready")
    for number in (2, 3):
        cluster.nodes[number].launch()
    for number in (2, 3):
        cluster.nodes[number].await_ready()
    until(lambda: page(http, "/ready")[0] == 200, "it is ready")


def test_a_node_that_stood_still_is_fenced_and_comes_back_by_itself(cluster: ClusterProcesses) -> None:
    controller = cluster.controller()
    victim = next(number for number in (1, 2, 3) if number != controller)
    http = str(cluster.nodes[victim].ready["http"])

    cluster.nodes[victim].pause()
    try:
        until(lambda: victim not in live_brokers(cluster, controller), "it is fenced")
    finally:
        cluster.nodes[victim].resume()
    until(lambda: victim in live_brokers(cluster, controller), "it is live")
    until(lambda: page(http, "/ready")[0] == 200, "it is ready")


def live_brokers(cluster: ClusterProcesses, number: int) -> list[int]:
    with contextlib.suppress(OSError, AssertionError):
        return [broker.node_id for broker in cluster.metadata(number, []).brokers]
    return []
