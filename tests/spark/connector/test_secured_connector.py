"""Spark's own connector and our format against a secured broker, with the same options."""

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerUnavailable
from benchmarks.peers.spark_connector import connector_jars
from penstock.client import TopicAdmin
from tests.compatibility.secured_node import PASSWORDS, SecuredNode, secured_node
from tests.spark.connector.session import ConnectorSession, Options

FORMATS = ("kafka", "penstock")
ROWS = 50
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectorSession]:
    import pyspark

    try:
        jars = connector_jars(pyspark.__version__)
    except PeerUnavailable as reason:
        pytest.skip(f"Spark's own connector is not to be had: {reason}")
    session = ConnectorSession(jars, tmp_path_factory.mktemp("connector"))
    yield session
    session.close()


def options(secured: SecuredNode, directory: Path, mechanism: str) -> Options:
    login = secured.login("SASL_SSL", mechanism, pair=secured.pair("alice")).java(directory)
    file = directory / "jaas.properties"
    # A file of Java properties, where a backslash has a meaning and a quote has none.
    file.write_text(f"sasl.jaas.config={login['sasl.jaas.config']}\n")
    file.chmod(0o600)
    login["sasl.jaas.config"] = f"${{file:{file}:sasl.jaas.config}}"
    login |= {"config.providers": "file", "config.providers.file.class": FILE_PROVIDER}
    return {f"kafka.{name}": value for name, value in login.items()}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_what_one_format_writes_the_other_reads_and_streams(
    connector: ConnectorSession,
    secured: SecuredNode,
    tmp_path: Path,
    mechanism: str,
    topic_numbers: Iterator[int],
) -> None:
    given = options(secured, tmp_path, mechanism)
    for form, other in (FORMATS, FORMATS[::-1]):
        topic, copy = (f"alice-{form}-{next(topic_numbers)}" for _ in range(2))
        for name in (topic, copy):
            TopicAdmin(secured.endpoint()).create(name, 2, 1, {})
        source = given | {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
        sink = given | {"topic": copy, "checkpointLocation": str(tmp_path / f"checkpoint-{form}")}

        columns = ["concat('v', id) value", "cast(null as string) key"]
        connector.write(form, ROWS, columns, given | {"topic": topic, "delivery": "at-least-once"})
        progress = connector.stream((other, form), source, sink | {"delivery": "at-least-once"})

        read = connector.read(other, given | {"subscribe": copy})
        assert {b64decode(row["value"]) for row in read} == {b"v%d" % row for row in range(ROWS)}
        assert sum(batch["numInputRows"] for batch in progress) == ROWS
        assert PASSWORDS["alice"] not in str(progress)
