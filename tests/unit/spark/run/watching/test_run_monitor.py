from penstock.spark.run.progress import BatchProgress, RunMonitor, RunState


def test_rows_add_up_and_the_last_batch_is_shown() -> None:
    board = RunMonitor("metrics")
    board.query_started("ingest", "1")

    board.progressed(
        BatchProgress("ingest", "1", batch=0, rows=100, rows_per_second=50.0, rows_dropped_late=2)
    )
    board.progressed(
        BatchProgress("ingest", "1", batch=1, rows=40, rows_per_second=80.0, duplicates_dropped=3)
    )

    (query,) = board.view().queries
    assert (query.batch, query.rows, query.rows_per_second) == (1, 140, 80.0)
    assert (query.rows_dropped_late, query.duplicates_dropped) == (2, 3)


def test_a_batch_without_rows_keeps_the_rate_and_the_positions() -> None:
    board = RunMonitor("metrics")
    board.progressed(
        BatchProgress("ingest", "1", batch=0, rows=100, rows_per_second=50.0, positions={("m", 0): 100})
    )

    board.progressed(BatchProgress("ingest", "1", batch=1, watermark="later"))

    (query,) = board.view().queries
    assert (query.rows_per_second, query.positions, query.watermark) == (50.0, {("m", 0): 100}, "later")


def test_a_query_that_has_caught_up_is_zero_seconds_behind() -> None:
    board = RunMonitor("metrics")
    board.progressed(BatchProgress("ingest", "1", batch=0, lag_records=10))
    board.lag_seen("ingest", 12, 3.5)
    before = board.view().queries[0]

    board.progressed(BatchProgress("ingest", "1", batch=1, lag_records=0))

    after = board.view().queries[0]
    assert (before.lag_records, before.lag_seconds) == (12, 3.5)
    assert (after.lag_records, after.lag_seconds) == (0, 0.0)


def test_the_end_of_a_query_says_whether_it_failed() -> None:
    board = RunMonitor("metrics")
    for name in ("ingest", "rollup"):
        board.query_started(name, name)

    board.query_ended("ingest", None)
    board.query_ended("rollup", "the disk is full")
    board.failed("query rollup failed: the disk is full")

    run = board.view()
    assert [(one.state, one.error) for one in run.queries] == [
        (RunState.STOPPED, None),
        (RunState.FAILED, "the disk is full"),
    ]
    assert (run.state, run.error) == (RunState.FAILED, "query rollup failed: the disk is full")
