"""What can go wrong between Spark, a topic and a table, as one line each."""

from penstock.core.model import PenstockError


class PipelineError(PenstockError):
    """The pipeline cannot go on, or cannot start; nothing was lost."""


class BadOption(PipelineError):
    """An option is missing, unknown, or has a value that it cannot have."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason

    def __reduce__(self) -> tuple[type["BadOption"], tuple[str, str]]:
        # Spark pickles what a worker raises, and an exception is rebuilt from its arguments.
        return (BadOption, (self.option, self.reason))


class DataLost(PipelineError):
    """Records that a query has not read yet are not in the log any more."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(
            f"{topic}/{partition}: offsets {start} to {end - 1} are gone before they were read"
            " (retention, deleted records, or a recreated topic);"
            " set failOnDataLoss to false to go on without them"
        )
        self.topic, self.partition, self.start, self.end = topic, partition, start, end

    def __reduce__(self) -> tuple[type["DataLost"], tuple[str, int, int, int]]:
        return (DataLost, (self.topic, self.partition, self.start, self.end))
