"""Which query and batch a task works for, as Spark tells it."""

from typing import NamedTuple

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class RunningQuery(NamedTuple):
    """A streaming query, by the id in its checkpoint, and the batch that it is at."""

    query_id: str
    batch_id: int


def running_query() -> RunningQuery | None:
    """The query and batch of the task that is running here, or None outside a streaming query."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return None
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        return None
    return RunningQuery(query_id, int(batch_id))


def running_task() -> int:
    """The number of the task that is running here, 0 outside Spark."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()
