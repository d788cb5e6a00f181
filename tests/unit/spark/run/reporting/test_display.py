import json

import pytest

from penstock.spark.run.display import JsonDisplay, LineDisplay, TableDisplay, display_for
from penstock.spark.run.progress import BatchProgress, RunMonitor


def board() -> RunMonitor:
    board = RunMonitor("metrics")
    board.running()
    board.query_started("ingest", "1")
    return board


def progress(batch: int) -> BatchProgress:
    return BatchProgress(
        "ingest", "1", batch=batch, rows=1000, rows_per_second=2500.4, batch_seconds=0.4, lag_records=7
    )


def test_json_has_one_object_for_the_start_for_each_batch_and_for_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, display = board(), JsonDisplay()

    display.show(run.view())
    for batch in (0, 1):
        run.progressed(progress(batch))
        for _ in range(3):
            display.show(run.view())
    run.stopped()
    display.end(run.view())

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line.get("batch")) for line in lines] == [
        ("started", None),
        ("progress", 0),
        ("progress", 1),
        ("end", None),
    ]
    assert (lines[2]["rows"], lines[2]["lag_records"]) == (2000, 7)
    assert (lines[3]["state"], lines[3]["queries"][0]["rows"]) == ("stopped", 2000)


def test_elsewhere_lines_go_to_stderr_and_say_the_lag(capsys: pytest.CaptureFixture[str]) -> None:
    run = board()
    run.progressed(progress(4))

    with display_for(as_json=False) as display:
        display.say("a word")
        display.end(run.view())

    captured = capsys.readouterr()
    assert isinstance(display, LineDisplay)
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "a word",
        "ingest running: batch 4 took 0.40 s, 1,000 rows in all, 2,500 rows/s, lag 7 records, - s",
    ]


def test_on_a_terminal_a_table_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    run = board()
    run.progressed(progress(4))

    with TableDisplay() as display:
        display.show(run.view())
        display.end(run.view())

    shown = capsys.readouterr().err
    assert "metrics: running" in shown
    assert "2,500" in shown
