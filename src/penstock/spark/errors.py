"""What can go wrong between Spark, a topic and a table, as one line each."""

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from penstock.core.model import PenstockError

_GO_ON = "set failOnDataLoss to false to go on"
# Spark's own switch, read by its Python processes whenever something was raised there.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_OURS = "penstock"
P = ParamSpec("P")
R = TypeVar("R")


def in_one_line(method: Callable[P, R]) -> Callable[P, R]:
    """Let an error that was expected reach the user without the traceback that Spark puts before it.

    For methods that Spark calls in the processes where it plans, which run nobody's functions but a
    data source's. Whatever else is raised keeps its traceback.
    """

    @wraps(method)
    def run(*arguments: P.args, **named: P.kwargs) -> R:
        if os.environ.get(_HIDE_TRACEBACK) == _OURS:
            del os.environ[_HIDE_TRACEBACK]
        try:
            return method(*arguments, **named)
        except PenstockError:
            os.environ.setdefault(_HIDE_TRACEBACK, _OURS)
            raise

    return run


class PipelineError(PenstockError):
    """The pipeline cannot go on, or cannot start; nothing was lost."""


class SparkOptionError(PipelineError):
    """An option is missing, unknown, or has a value that it cannot have."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason

    def __reduce__(self) -> tuple[type["SparkOptionError"], tuple[str, str]]:
        # Spark pickles what a worker raises, and an exception is rebuilt from its arguments.
        return (SparkOptionError, (self.option, self.reason))


class DataLost(PipelineError):
    """Records that a query has not read yet are not in the log any more."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(
            f"{topic}/{partition}: offsets {start} to {end - 1} are gone before they were read"
            " (retention, deleted records, or a recreated topic);"
            f" {_GO_ON} without them"
        )
        self.topic, self.partition, self.start, self.end = topic, partition, start, end

    def __reduce__(self) -> tuple[type["DataLost"], tuple[str, int, int, int]]:
        return (DataLost, (self.topic, self.partition, self.start, self.end))


class TopicRecreated(PipelineError):
    """The topic's name stands for another log than the one that the checkpoint speaks of."""

    def __init__(self, topic: str, partition: int, checkpointed: int, end: int) -> None:
        super().__init__(
            f"{topic}/{partition}: the topic was created anew (or its log cut off) under the checkpoint:"
            f" the query had read up to offset {checkpointed} of the old log, the new one ends at {end};"
            f" what the old one still held is gone; {_GO_ON} with the new one from its beginning,"
            " or start with a fresh checkpoint"
        )
        self.topic, self.partition, self.checkpointed, self.end = topic, partition, checkpointed, end

    def __reduce__(self) -> tuple[type["TopicRecreated"], tuple[str, int, int, int]]:
        return (TopicRecreated, (self.topic, self.partition, self.checkpointed, self.end))


class PartitionGone(PipelineError):
    """A partition that the checkpoint speaks of is not there, or not among those that the query reads."""

    def __init__(self, topic: str, partition: int, checkpointed: int) -> None:
        super().__init__(
            f"{topic}/{partition}: the checkpoint holds offset {checkpointed}, but the partition was deleted"
            " or is not read by this query (is it the checkpoint of another one?);"
            f" {_GO_ON} without it"
        )
        self.topic, self.partition, self.checkpointed = topic, partition, checkpointed

    def __reduce__(self) -> tuple[type["PartitionGone"], tuple[str, int, int]]:
        return (PartitionGone, (self.topic, self.partition, self.checkpointed))
