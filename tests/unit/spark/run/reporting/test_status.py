import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.spark.run.progress import BatchProgress, RunMonitor
from penstock.spark.run.status import STATUS_NAME, StatusFile, process_started, read_statuses


def written(directory: Path, board: RunMonitor) -> None:
    StatusFile(directory, {"master": "local[*]", "log": "spark.log"}).write(board.view())


def board_with_a_batch() -> RunMonitor:
    board = RunMonitor("metrics")
    board.running()
    board.query_started("ingest", "1")
    board.progressed(BatchProgress("ingest", "1", batch=3, rows=10, lag_records=5, positions={("m", 0): 10}))
    return board


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written(tmp_path / "metrics", board_with_a_batch())

    (status,) = read_statuses(tmp_path)

    assert (status["name"], status["state"], status["pid"]) == ("metrics", "running", os.getpid())
    (query,) = status["queries"]
    assert (query["name"], query["batch"], query["rows"], query["lag_records"]) == ("ingest", 3, 10, 5)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == [STATUS_NAME]


def test_a_run_whose_process_is_gone_has_died(tmp_path: Path) -> None:
    written(tmp_path / "metrics", board_with_a_batch())
    path = tmp_path / "metrics" / STATUS_NAME
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": ended.pid}))

    (status,) = read_statuses(tmp_path)
    assert (status["state"], status["queries"][0]["state"]) == ("died", "died")


def test_a_process_that_has_the_number_of_a_dead_one_is_not_taken_for_it(tmp_path: Path) -> None:
    written(tmp_path / "metrics", board_with_a_batch())
    path = tmp_path / "metrics" / STATUS_NAME
    status = json.loads(path.read_text())

    path.write_text(json.dumps({**status, "process_started": status["process_started"] - 1}))

    assert [one["state"] for one in read_statuses(tmp_path)] == ["died"]


def test_a_run_that_ended_in_order_stays_stopped(tmp_path: Path) -> None:
    board = board_with_a_batch()
    board.stopped()
    written(tmp_path / "metrics", board)
    path = tmp_path / "metrics" / STATUS_NAME

    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": 2**22 + 1}))

    assert [one["state"] for one in read_statuses(tmp_path)] == ["stopped"]


def test_files_of_somebody_else_are_passed_over(tmp_path: Path) -> None:
    for number, content in enumerate(["{", "[]", "{}"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / STATUS_NAME).write_text(content)

    assert list(read_statuses(tmp_path)) == []


def test_a_process_has_one_time_at_which_it_began() -> None:
    assert process_started(os.getpid()) == process_started(os.getpid())
    assert process_started(os.getpid()) != process_started(1)
