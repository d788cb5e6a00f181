"""A worker whose parent is killed."""

import os
import subprocess
import sys

WORKER = """\
import os, time
from penstock.spark.orphan import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"
# The pipe's other end is held by parent and child: it ends when both have.
ENDS_SECONDS = 30


def outlives(environment: dict[str, str]) -> bool:
    """Whether a child, waiting, is there when its parent was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=os.environ | environment, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        try:
            parent.communicate(timeout=ENDS_SECONDS if environment else 3)
        except subprocess.TimeoutExpired:
            os.kill(child, 9)
            return True
    return False


def test_a_worker_of_spark_ends_with_its_parent() -> None:
    assert not outlives({"PYTHON_WORKER_FACTORY_PORT": "1"})


def test_any_other_process_is_left_alone() -> None:
    assert outlives({})
