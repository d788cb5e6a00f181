"""What kafka-python's tests of SASL and TLS find in the place of a Kafka of their own: a secured node.

A plugin for the pytest that runs them: their fixture would start an installed Kafka with its own scripts,
once for each test. One node has listeners and mechanisms for all of them.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import TopicAdmin
from tests.compatibility.secured_node import SecuredNode, secured_node

# Who logs in is an administrator there, and without rules everything is open, as in their Kafka.
SETTINGS = ("security.super_users=admin,alice", "security.open_without_rules=true")


class StartedBroker:
    """What their fixture calls its child."""

    def dump_logs(self) -> None:
        """The node's events are gone with its directory."""


@contextmanager
def _node() -> Iterator[SecuredNode]:
    root = Path(tempfile.mkdtemp(prefix="kafka-python-"))
    try:
        with secured_node(root, "topics.partitions=4", *SETTINGS) as node:
            shutil.copy(node.authority, root / "ca-cert")
            yield node
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _start(node: SecuredNode, fixture: Any) -> None:
    """Let the fixture name the node: its `port`, and in `ssl_dir` whom clients trust."""
    node.admin.set_password(fixture.broker_user, fixture.broker_password)
    fixture.port = int(node.addresses[fixture.transport].rpartition(":")[2])
    fixture.ssl_dir = str(node.root)
    fixture.child, fixture.running = StartedBroker(), True


def _stop(fixture: Any) -> None:
    fixture.running = False


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    """Start the node when their tests, and with them their module, have been found."""
    fixtures = sys.modules["test.integration.fixtures"]
    with _node() as node:
        kind = fixtures.KafkaFixture
        kind.open = kind.start = lambda fixture: _start(node, fixture)
        kind.stop = kind.close = _stop
        kind.get_topic_names = lambda _: [topic.name for topic in TopicAdmin(node.endpoint()).list()]
        return (yield)
