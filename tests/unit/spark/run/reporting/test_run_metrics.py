from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.run.progress import BatchProgress, RunMonitor
from penstock.spark.run.status import RunMetrics, parse_address, serve_metrics


def test_batches_are_counted_and_the_lag_is_shown_to_whoever_scrapes() -> None:
    board, metrics = RunMonitor("metrics"), RunMetrics()
    for batch in (0, 1):
        progress = BatchProgress(
            "ingest", "1", batch=batch, rows=100, batch_seconds=0.3, rows_dropped_late=1, lag_records=9
        )
        board.progressed(progress)
        metrics.count(progress)
    metrics.show(board.view())

    with serve_metrics("127.0.0.1:0", metrics) as address:
        page = urlopen(f"http://{address}/metrics").read().decode()
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(f"http://{address}/other")
        refused.value.close()

    lines = page.splitlines()
    assert 'penstock_pipeline_rows_total{query="ingest"} 200.0' in lines
    assert 'penstock_pipeline_rows_dropped_late_total{query="ingest"} 2.0' in lines
    assert 'penstock_pipeline_lag_records{query="ingest"} 9.0' in lines
    assert 'penstock_pipeline_batch_seconds_bucket{le="0.5",query="ingest"} 2.0' in lines
    assert 'penstock_pipeline_running{query="ingest"} 1.0' in lines


def test_a_lag_that_is_not_known_is_not_shown() -> None:
    board, metrics = RunMonitor("metrics"), RunMetrics()
    board.progressed(BatchProgress("rollup", "1", batch=0, lag_records=4))
    metrics.show(board.view())
    board.progressed(BatchProgress("rollup", "1", batch=1))
    metrics.show(board.view())

    assert metrics.lag_records.figures == {}
    assert set(metrics.rate.figures) == {("rollup",)}


@pytest.mark.parametrize("address", ["", "9090", "host:", "host:x", "host:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SparkOptionError, match="option metrics: not a host:port"):
        parse_address(address)


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    with (
        serve_metrics("127.0.0.1:0", RunMetrics()) as address,
        pytest.raises(SparkOptionError, match=f"option metrics: {address} cannot be listened on"),
        serve_metrics(address, RunMetrics()),
    ):
        pass
