"""Examples of the guide to Spark's own Kafka connector, with our format and with that one.

What the connector gives is written down in `guide_outcomes.json`; it is asked again wherever its jars
are to be had. Outside of `make test`, which has no minutes for it: `make guide`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerUnavailable
from benchmarks.peers.spark_connector import connector_jars
from tests.spark.connector.guide import EXAMPLES, Bench
from tests.spark.connector.session import ConnectorSession
from tests.support.nodes import NodeProcess

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OUTCOMES = json.loads((HERE / "guide_outcomes.json").read_text())
# Better on purpose, or out of reach of a source in Python; docs/reference/spark-connector.md lists them.
OURS = json.loads((HERE / "guide_differences.json").read_text())

pytestmark = pytest.mark.skipif(
    "PENSTOCK_GUIDE" not in os.environ, reason="the examples of the guide take minutes: make guide"
)


@pytest.fixture(scope="module")
def jars() -> list[Path] | str:
    """The connector's jars, or why there are none."""
    import pyspark

    try:
        return connector_jars(pyspark.__version__)
    except PeerUnavailable as reason:
        return f"Spark's own connector is not to be had: {reason}"


@pytest.fixture(scope="module")
def session(jars: list[Path] | str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectorSession]:
    here = tmp_path_factory.mktemp("guide")
    session = ConnectorSession([] if isinstance(jars, str) else jars, here)
    yield session
    session.close()


@pytest.fixture(scope="module")
def guided(node: NodeProcess) -> str:
    """The broker with the topics of the examples."""
    Bench.prepare(node.kafka)
    return node.kafka


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_does_the_same_with_our_format(
    session: ConnectorSession, guided: str, tmp_path: Path, example: str
) -> None:
    expected = OURS.get(example, OUTCOMES[example])

    assert session.example(example, "penstock", guided, tmp_path) == expected


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_does_with_the_official_connector_what_is_written_down(
    session: ConnectorSession, jars: list[Path] | str, guided: str, tmp_path: Path, example: str
) -> None:
    if isinstance(jars, str):
        pytest.skip(jars)

    assert session.example(example, "kafka", guided, tmp_path) == OUTCOMES[example]
