from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import Endpoint, ProducerOptions, TopicProducer
from penstock.spark.run.failures import RunFailed
from penstock.spark.run.launch import QuerySupervisor, StopSignals
from penstock.spark.run.progress import BatchProgress, RunMonitor, RunState, board_listener, look_once
from tests.spark.run.pipelines import READING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Path("spark.log")


@pytest.fixture
def board(spark: "SparkSession") -> Iterator[RunMonitor]:
    """A monitor that follows every query of the session."""
    board = RunMonitor("reading")
    listener = board_listener(board, [])
    spark.streams.addListener(listener)
    yield board
    spark.streams.removeListener(listener)


@pytest.fixture
def config(servers: str, topic: str, tmp_path: Path) -> dict[str, str]:
    return {"bootstrap": servers, "topic": topic, "state_dir": str(tmp_path)}


def send(config: dict[str, str], *values: str) -> None:
    sender = TopicProducer(Endpoint(config["bootstrap"]), config["topic"], ProducerOptions())
    for value in values:
        sender.send(value.encode())
    sender.finish()


def test_a_query_that_runs_once_is_followed_to_its_end(
    spark: "SparkSession", board: RunMonitor, config: dict[str, str]
) -> None:
    send(config, *"abc")
    views = []

    QuerySupervisor(board, StopSignals(), lambda: views.append(board.view()), LOG).supervise(
        READING.start(spark, config, once=True), once=True
    )

    (query,) = board.view().queries
    assert (query.state, query.rows, query.lag_records, query.lag_seconds) == (RunState.STOPPED, 3, 0, 0.0)
    assert views


def test_a_query_that_fails_ends_the_run_with_its_own_reason(
    spark: "SparkSession", board: RunMonitor, config: dict[str, str]
) -> None:
    send(config, "poison")

    with pytest.raises(RunFailed) as failed:
        QuerySupervisor(board, StopSignals(), lambda: None, LOG).supervise(
            READING.start(spark, config), once=False
        )

    assert str(failed.value).startswith(
        "query reading failed: the-topic/1: offsets 5 to 8 are gone before they were read"
    )
    assert str(failed.value).endswith("(more in spark.log)")
    (query,) = board.view().queries
    assert query.state is RunState.FAILED
    assert (query.error or "").startswith("the-topic/1: offsets 5 to 8")


def test_records_that_came_after_the_last_batch_count_as_lag(config: dict[str, str], topic: str) -> None:
    send(config, *"abc")
    board = RunMonitor("stuck")
    board.progressed(
        BatchProgress("reading", "1", batch=0, lag_records=0, positions={(topic, 0): 0, (topic, 1): 0})
    )

    look_once(board, Endpoint(config["bootstrap"]))

    (behind,) = board.view().queries
    assert behind.lag_records == 3
    assert behind.lag_seconds is not None
    assert behind.lag_seconds >= 0
