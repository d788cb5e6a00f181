"""How far event time has come when a batch starts, from the query's own checkpoint.

Spark drops rows that are not newer than the watermark, and says no more than how many. To keep
them, a task has to know the watermark before Spark does its work. It is in the checkpoint: Spark
writes `offsets/<batch>` before the first task of the batch starts, and a batch that is tried again
has the same one.

    v1
    {"batchWatermarkMs":1763200000000,"batchTimestampMs":...,"conf":{...}}
    {...}                                                  the source's offsets
"""

import json

from penstock.pipeline.errors import PipelineError


def batch_watermark_ms(checkpoint: str, batch_id: int) -> int:
    """The watermark of a batch; rows that are not newer are late."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        return watermark_in(_read(path))
    except (KeyError, ValueError, TypeError, IndexError):
        raise PipelineError(f"checkpoint {path} has no watermark") from None


def watermark_in(text: str) -> int:
    """The watermark in the text of a batch's offsets; KeyError, ValueError and others where it has none."""
    return int(json.loads(text.splitlines()[1])["batchWatermarkMs"])


def _read(path: str) -> str:
    from pyarrow import fs

    try:
        # A plain path may be relative to nothing: the driver made it absolute.
        system, name = fs.FileSystem.from_uri(path)
        with system.open_input_stream(name) as stream:
            return bytes(stream.read()).decode()
    except (OSError, ValueError) as error:
        raise PipelineError(f"checkpoint {path} cannot be read where the tasks run: {error}") from None
