import pytest

from penstock.spark.run.failures import LENGTH_MAX, reason

OURS = """\
[STREAM_FAILED] Query [id = 5f, runId = 9c] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 3.0 failed 1 times: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/somewhere/pyspark/worker.py", line 1, in main
    process()
KeyError: 7

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/somewhere/penstock/reading.py", line 12, in read
    raise DataLost("m", 0, 5, 9)
penstock.spark.errors.DataLost: m/0: offsets 5 to 8 are gone before they were read

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:1097)
 SQLSTATE: XXKST"""

FOREIGN = """\
[STREAM_FAILED] Query [id = 5f, runId = 9c] terminated with exception: \
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/somewhere/job.py", line 3, in one
    return 1 / 0
           ~~^~~
ZeroDivisionError: division by zero
 SQLSTATE: 38000"""

JAVA = """\
[STREAM_FAILED] Query [id = 5f, runId = 9c] terminated with exception: \
java.io.IOException: No space left on device SQLSTATE: XXKST
=== Streaming Query ===
Identifier: rollup [id = 5f]

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException
\tat org.apache.spark.sql.Thing.run(Thing.scala:1)"""

SPARK = """[UNSUPPORTED_STREAMING.APPEND] Append output mode needs a watermark. SQLSTATE: 0A000;
Aggregate [a#1]"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS, "m/0: offsets 5 to 8 are gone before they were read"),
        (FOREIGN, "ZeroDivisionError: division by zero"),
        (JAVA, "IOException: No space left on device"),
        (SPARK, "Append output mode needs a watermark.; Aggregate [a#1]"),
        ("just this", "just this"),
    ],
)
def test_the_reason_is_one_line_without_what_is_wrapped_around_it(text: str, line: str) -> None:
    assert reason(text) == line


def test_a_failure_that_says_nothing_gives_way_to_what_caused_it() -> None:
    vague = "[STREAM_FAILED] Query [id = 5f] terminated with exception: Writing job failed. SQLSTATE: XXKST"

    assert (
        reason(vague, "org.apache.spark.SparkException: Writing job failed.", FOREIGN)
        == "ZeroDivisionError: division by zero"
    )
    assert reason(vague, "Writing job failed.", "[X_Y] The disk is on fire.") == "The disk is on fire."
    assert reason(vague) == "Writing job failed."


def test_causes_are_not_asked_where_the_failure_speaks_for_itself() -> None:
    assert reason(FOREIGN, OURS) == "ZeroDivisionError: division by zero"


def test_a_reason_without_end_is_cut() -> None:
    assert len(reason("word " * 10_000)) == LENGTH_MAX + 1
