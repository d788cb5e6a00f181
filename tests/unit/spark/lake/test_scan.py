"""How files are packed into tasks."""

from penstock.spark.lake.delta_log import DataFile
from penstock.spark.lake.source import TASK_BYTES_MAX, pack


def files(*sizes: int) -> list[DataFile]:
    return [DataFile(str(index), size, 0, {}) for index, size in enumerate(sizes)]


def test_no_files_make_no_task() -> None:
    assert pack([]) == []


def test_every_file_is_in_one_task_in_its_place() -> None:
    given = files(*[1000] * 50, TASK_BYTES_MAX, TASK_BYTES_MAX * 3, 1000)

    packed = pack(given)

    assert [file for task in packed for file in task] == given
    assert all(sum(file.size for file in task) <= TASK_BYTES_MAX for task in packed if len(task) > 1)


def test_large_files_have_a_task_each() -> None:
    assert [len(task) for task in pack(files(*[TASK_BYTES_MAX] * 4))] == [1, 1, 1, 1]
