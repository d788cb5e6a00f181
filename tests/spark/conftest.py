"""One broker and one Spark session for all Spark tests: starting them takes longer than most tests."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import Endpoint, TopicAdmin
from penstock.spark.run.session import environment
from tests.support.nodes import NodeProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# What makes a test of a second out of one of ten: no web server, and no two hundred tasks per shuffle.
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    # Compiling thoroughly, and collecting in parallel, takes half of the time of so short a process.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, one of them has the JVM and all the tests that need it (--dist loadgroup)."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A broker; a test that kills it starts one of its own instead."""
    node = NodeProcess(tmp_path_factory.mktemp("spark") / "node").start()
    yield node
    node.stop()


@pytest.fixture(scope="session")
def servers(node: NodeProcess) -> str:
    """The value for kafka.bootstrap.servers."""
    return node.kafka


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from pyspark.sql import SparkSession

    os.environ.update(environment("local[2]"))
    builder = SparkSession.builder.master("local[2]").appName("penstock tests")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    here = tmp_path_factory.mktemp("warehouse")
    builder = builder.config("spark.sql.warehouse.dir", str(here)).config("spark.local.dir", str(here))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topic_name(topic_numbers: Iterator[int]) -> str:
    """A name that no other test has; nothing has created the topic yet."""
    return f"t{next(topic_numbers)}-{os.getpid()}"


@pytest.fixture
def topic(servers: str, topic_name: str) -> str:
    """A fresh topic of two partitions."""
    TopicAdmin(Endpoint(servers)).create(topic_name, 2, 1, {})
    return topic_name


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
