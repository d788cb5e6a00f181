"""What Spark does with a sink, in one process without a JVM, and killed where it is told to be.

python -m tests.spark.sink.sink_driver SERVERS TOPIC CHECKPOINT BATCHES [BATCH POINT]

The checkpoint holds the next batch, and is written after the commit: a driver that is killed in between
repeats a batch that counts already. Points: `task` is in the middle of the second task, `written` is
when all tasks are done, `committed` is before the checkpoint.
"""

import os
import signal
import sys
from pathlib import Path

from penstock.spark.sink import BatchId, TaskId, delivery_for, sink_options

QUERY = "the-query"
TASKS, ROWS = 3, 50


def drive(servers: str, topic: str, checkpoint: Path, batches: int, end: tuple[int, str] | None) -> None:
    delivery = delivery_for(sink_options({"kafka.bootstrap.servers": servers, "delivery": "exactly-once"}))
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for batch in range(first, batches):
        receipts = []
        for task in range(TASKS):
            writing = delivery.open(TaskId(QUERY, task, 0))
            rows = [b"%d-%d-%d" % (batch, task, row) for row in range(ROWS)]
            writing.send(topic, rows[: ROWS // 2])
            if task == 1:
                _end_at(end, batch, "task")
            writing.send(topic, rows[ROWS // 2 :])
            receipts.append(writing.finish())
        _end_at(end, batch, "written")
        delivery.commit(receipts, BatchId(QUERY, batch))
        _end_at(end, batch, "committed")
        fresh = checkpoint.with_suffix(".tmp")
        fresh.write_text(str(batch + 1))
        fresh.replace(checkpoint)


def _end_at(end: tuple[int, str] | None, batch: int, point: str) -> None:
    if end == (batch, point):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    servers, topic, checkpoint, batches, *end = sys.argv[1:]
    drive(servers, topic, Path(checkpoint), int(batches), (int(end[0]), end[1]) if end else None)
