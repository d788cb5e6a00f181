"""The jobs, on what the pipeline has stored."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.client import BulkProducer, ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from penstock.spark.errors import PipelineError
from penstock.spark.jobs import JOBS
from penstock.spark.metrics import PIPELINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_763_200_020_000


def point(index: int) -> bytes:
    found = {"name": "cpu", "value": index / 7, "timestamp": START_MS + index * 1_000, "client": "c"}
    return json.dumps(found | {"labels": {"host": "a"}}).encode()


@pytest.fixture(scope="module")
def ingested(
    spark: "SparkSession", servers: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], Path]:
    """Forty measurements, one of them twice, and a malformed record, in two batches; and where it all is."""
    names = {"inbound": "jobs", "rollup": "jobs.rollup", "dead_letter": "jobs.dlq"}
    for name in (*names.values(), "jobs.again"):
        TopicAdmin(Endpoint(servers)).create(name, 2, 1, {})
    state = tmp_path_factory.mktemp("jobs")
    given = {"bootstrap": servers, "groups.ingest": "jobs"}
    given |= {f"topics.{role}": name for role, name in names.items()}
    config = PIPELINES["metrics"].configure(None, given | {"state_dir": str(state)})
    for first in (0, 20):
        sender = BulkProducer(Endpoint(servers))
        for index in range(first, first + 20):
            sender.send(config.topics.inbound, [point(index)], [b"key-%d" % index], index % 2)
        sender.send(config.topics.inbound, [point(3)] if first else [b"oops"], [b"x"], 0)
        sender.finish()
        next(iter(PIPELINES["metrics"].start(spark, config, once=True))).awaitTermination()
    return given, state


@pytest.fixture
def given(ingested: tuple[dict[str, str], Path], tmp_path: Path) -> dict[str, str]:
    """A copy of the tables, for a test to spoil."""
    settings, state = ingested
    shutil.copytree(state / "lake", tmp_path / "lake")
    return settings | {"state_dir": str(tmp_path)}


@pytest.fixture
def stored(given: dict[str, str]) -> str:
    return f"{given['state_dir']}/lake/raw"


def test_an_audit_accounts_for_every_offset_and_finds_what_is_missing_or_twice(
    spark: "SparkSession", given: dict[str, str], stored: str
) -> None:
    job = JOBS["audit"]
    config = job.configure(None, given)

    sound = job.run(spark, config)
    table = DeltaTable(stored)
    again = table.to_pyarrow_table(filters=[("offset", "=", 4), ("partition", "=", 1)])
    table.delete("partition = 1 and (offset = 6 or offset = 7)")
    write_deltalake(stored, again, mode="append")
    spoiled = job.run(spark, config)

    assert sound["findings"] == []
    assert sound["partitions"]["0"]["stored"] == sound["partitions"]["1"]["stored"] == 20
    assert sound["partitions"]["0"]["dead_letters"] == 1
    assert sound["partitions"]["0"]["repeats_dropped"] == 1
    assert sound["partitions"]["1"]["behind_ms"]["max"] == 0
    assert sum(sound["dates"].values()) == 40
    assert spoiled["missing_ranges"] == ["1: 6-7"]
    assert spoiled["repeated"] == {"by_origin": 1, "by_measurement": 1}
    with pytest.raises(PipelineError, match="2 records are missing; 1 rows are in the table twice"):
        job.run(spark, job.configure(None, given | {"fail": "true"}))


def test_a_backfill_sends_what_lies_between_two_times_under_the_keys_it_had(
    spark: "SparkSession", servers: str, given: dict[str, str], stored: str
) -> None:
    job = JOBS["backfill"]
    topic = "jobs.again"
    between = {"start": "2025-11-15T09:47:10Z", "end": "2025-11-15T09:47:15Z", "records_per_second": "1000"}

    report = job.run(spark, job.configure(None, given | between | {"topic": topic}))

    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        records = [record for batch in reader.batches() for record in batch]
    assert report["records"] == 5
    assert {record.key: json.loads(record.value or b"") for record in records} == {
        b"key-%d" % index: json.loads(point(index)) for index in range(10, 15)
    }


def test_a_backfill_sends_rows_in_the_order_in_which_they_came_however_the_table_is_sorted(
    spark: "SparkSession", servers: str, given: dict[str, str], stored: str
) -> None:
    job = JOBS["backfill"]
    topic = "jobs.in-order"
    TopicAdmin(Endpoint(servers)).create(topic, 1, 1, {})
    rows = DeltaTable(stored).to_pyarrow_table().sort_by([("timestamp", "descending")])
    write_deltalake(stored, rows.slice(0, 20), mode="overwrite")
    write_deltalake(stored, rows.slice(20), mode="append")

    job.run(spark, job.configure(None, given | {"topic": topic}))

    with TopicConsumer(Endpoint(servers), topic, ConsumerOptions()) as reader:
        values = [json.loads(record.value or b"") for batch in reader.batches() for record in batch]
    came = rows.sort_by([(name, "ascending") for name in ("recorded", "partition", "offset")])
    sent = [round(moment.timestamp() * 1_000) for moment in came["timestamp"].to_pylist()]
    assert [value["timestamp"] for value in values] == sent


def test_compaction_makes_few_files_of_many_and_loses_no_row(
    spark: "SparkSession", given: dict[str, str], stored: str
) -> None:
    job = JOBS["compact"]
    before = (
        DeltaTable(stored).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    )

    report = job.run(spark, job.configure(None, given | {"tables": "raw"}))

    after = (
        DeltaTable(stored).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    assert report["raw"]["files_made_of_them"] == 1 < report["raw"]["files_put_together"]
    assert after.equals(before)
