"""Spark's own connector against our broker, and beside our own format."""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerUnavailable
from benchmarks.peers.spark_connector import connector_jars, connector_version
from penstock.client import ConsumedRecord, ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from tests.spark.connector.session import ConnectorSession, Options, Row

FORMATS = ("kafka", "penstock")
ROWS = 300
HEADER = "named_struct('key', 'n', 'value', cast(concat('h', id) as binary))"
NO_VALUE = "named_struct('key', 'n', 'value', cast(null as binary))"
COLUMNS = [
    "case when id % 7 > 0 then concat('k', id) end key",
    "case when id % 11 > 0 then concat('v', id) end value",
    "cast(case when id % 3 = 0 then id % 2 end as int) partition",
    f"case when id % 2 > 0 then array({HEADER}, {NO_VALUE}) end headers",
]


@pytest.fixture(scope="module")
def connector(
    tmp_path_factory: pytest.TempPathFactory, record_testsuite_property: Callable[[str, str], None]
) -> Iterator[ConnectorSession]:
    import pyspark

    try:
        jars = connector_jars(pyspark.__version__)
    except PeerUnavailable as reason:
        pytest.skip(f"Spark's own connector is not to be had: {reason}")
    record_testsuite_property("connector", connector_version(jars))
    session = ConnectorSession(jars, tmp_path_factory.mktemp("connector"))
    yield session
    session.close()


@pytest.fixture
def options(servers: str) -> Options:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }


def records(servers: str, topic: str) -> list[ConsumedRecord]:
    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        return [record for batch in reader.batches() for record in batch]


def contents(rows: list[Row]) -> Counter[str]:
    """What the rows hold, wherever they are."""
    return Counter(
        json.dumps([row.get("key"), row.get("value"), row.get("headers")], sort_keys=True) for row in rows
    )


@pytest.mark.parametrize("form", FORMATS)
def test_what_one_format_writes_both_read_alike(
    connector: ConnectorSession, options: Options, servers: str, topic: str, form: str
) -> None:
    sink = {"kafka.bootstrap.servers": servers, "topic": topic}
    source = options | {"subscribe": topic}

    connector.write(form, ROWS, COLUMNS, sink)

    theirs, ours = (connector.read(one, source) for one in FORMATS)
    assert theirs == ours
    assert len(ours) == ROWS
    assert {b64decode(row["value"]) for row in ours if "value" in row} == {
        b"v%d" % number for number in range(ROWS) if number % 11
    }
    every = {record.key: record for record in records(servers, topic) if record.key is not None}
    assert len(every) == sum(number % 7 > 0 for number in range(ROWS))
    assert every[b"k3"].partition == 1
    assert list(every[b"k3"].headers) == [("n", b"h3"), ("n", None)]
    assert every[b"k4"].headers in (None, [], ())


def test_offsets_as_json_choose_the_same_rows(
    connector: ConnectorSession, options: Options, servers: str, topic: str
) -> None:
    sink = {"kafka.bootstrap.servers": servers, "topic": topic}
    connector.write("kafka", ROWS, [*COLUMNS[:2], "cast(id % 2 as int) partition"], sink)
    ranges = options | {
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 20, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 30}}),
    }

    theirs, ours = (connector.read(one, ranges) for one in FORMATS)

    assert theirs == ours
    assert [(row["partition"], row["offset"]) for row in ours] == [
        *((0, offset) for offset in range(20, ROWS // 2)),
        *((1, offset) for offset in range(30)),
    ]


@pytest.mark.parametrize("forms", [("kafka", "kafka"), ("kafka", "penstock"), ("penstock", "kafka")])
def test_a_stream_goes_on_where_it_stopped_whichever_format_reads_and_whichever_writes(
    connector: ConnectorSession,
    options: Options,
    servers: str,
    topic: str,
    tmp_path: Path,
    forms: tuple[str, str],
) -> None:
    copy = f"{topic}-copy"
    TopicAdmin(Endpoint(servers)).create(copy, 2, 1, {})
    sink = {"kafka.bootstrap.servers": servers, "checkpointLocation": str(tmp_path / "checkpoint")}
    source = options | {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}

    progress = []
    for _ in range(2):
        connector.write("kafka", ROWS, COLUMNS, {"kafka.bootstrap.servers": servers, "topic": topic})
        progress.append(connector.stream(forms, source, sink | {"topic": copy}))

    for batches in progress:
        assert sum(batch["numInputRows"] for batch in batches) == ROWS
        assert max(batch["numInputRows"] for batch in batches) <= 100 + 1
    (last,) = progress[-1][-1]["sources"]
    assert sum(last["endOffset"][topic].values()) == 2 * ROWS
    copied = connector.read("kafka", options | {"subscribe": copy})
    assert contents(copied) == contents(connector.read("penstock", options | {"subscribe": topic}))
