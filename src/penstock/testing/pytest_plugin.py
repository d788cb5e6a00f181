"""Fixtures for pytest: a broker that the tests of a session share, and a topic for each test.

    penstock_broker    the broker of the session, started when the first test asks for it
    penstock_topic     the name of a new topic of that broker
    penstock_settings  settings of that broker; a project's conftest.py may override it

In pytest.ini, or after `-o`:

    penstock_nodes = 3           a cluster
    penstock_in_process = false  in processes of their own
    penstock_settings =          one setting per line
        topics.partitions = 6

A test marked `penstock_topic(partitions=3, configs={…})` gets its topic so. With pytest-xdist each worker
has a broker of its own.

Whoever does not use it pays for the import of this file.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("penstock_nodes", "nodes of the broker for tests", default="1")
    parser.addini("penstock_in_process", "whether they are threads of pytest's process (true, false)")
    parser.addini("penstock_settings", "settings of the broker for tests, one per line", type="linelist")


class PlainImports:
    """Imports modules of ours as they are; pytest would rewrite the assertions of whoever brings a plugin.

    For that it parses each module, and Python 3.11 fails when two threads parse at once ("AST constructor
    recursion depth mismatch"). A broker inside pytest's process imports some on its thread.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("penstock.") else None


def pytest_configure(config: pytest.Config) -> None:
    sys.meta_path.insert(0, PlainImports())
    config.addinivalue_line(
        "markers", "penstock_topic(partitions, replication_factor, configs): the topic of `penstock_topic`."
    )


@pytest.fixture(scope="session")
def penstock_settings(pytestconfig: pytest.Config) -> Mapping[str, object]:
    """Settings of the broker; by default those of the ini file."""
    lines = [line.partition("=") for line in pytestconfig.getini("penstock_settings")]
    if wrong := [key for key, equals, _ in lines if not equals]:
        raise pytest.UsageError(f"penstock_settings: expected key = value, got {', '.join(wrong)}")
    return {key.strip(): text.strip() for key, _, text in lines}


@pytest.fixture(scope="session")
def penstock_broker(
    pytestconfig: pytest.Config, penstock_settings: Mapping[str, object]
) -> "Iterator[Broker]":
    """A broker that all tests of the session share."""
    from penstock.testing import broker

    nodes, where = pytestconfig.getini("penstock_nodes"), pytestconfig.getini("penstock_in_process")
    if not nodes.isdecimal():
        raise pytest.UsageError(f"penstock_nodes = {nodes}: expected a number")
    if where not in ("", "true", "false"):
        raise pytest.UsageError(f"penstock_in_process = {where}: expected true or false")
    in_process = where == "true" if where else None
    with broker(nodes=int(nodes), in_process=in_process, settings=penstock_settings) as started:
        yield started


@pytest.fixture
def penstock_topic(penstock_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    marker = request.node.get_closest_marker("penstock_topic")
    return penstock_broker.create_topic(**({} if marker is None else marker.kwargs))
