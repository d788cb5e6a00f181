"""What lies in quarantine, and its removal."""

from penstock.broker.partitions.quarantine import QuarantineSize, drop_quarantines, measure_quarantines
from penstock.core.model import MILLISECOND, Timestamp
from penstock.storage.disk import CrashableDisk


def filled() -> CrashableDisk:
    disk = CrashableDisk()
    for directory in ("logs", "logs/a", "logs/a/quarantine", "logs/b"):
        disk.make_directory(directory)
    for name in ("1.cut", "2.log"):
        file = disk.open(f"logs/a/quarantine/{name}", create=True)
        file.append(b"x" * 10)
        file.close()
    return disk


def test_quarantines_are_measured_also_where_there_is_none() -> None:
    assert measure_quarantines(filled(), ["logs/a", "logs/b"]) == {
        "logs/a": QuarantineSize(2, 20),
        "logs/b": QuarantineSize(0, 0),
    }


def test_only_what_is_old_enough_is_removed() -> None:
    disk = filled()
    file = disk.open("logs/a/quarantine/2.log")
    file.append(b"y")
    newer = Timestamp(-(-file.modified_ns() // MILLISECOND))
    file.close()

    assert drop_quarantines(disk, ["logs/a", "logs/b"], Timestamp(-1)) == QuarantineSize(0, 0)
    assert drop_quarantines(disk, ["logs/a", "logs/b"], Timestamp(newer + 1)) == QuarantineSize(2, 21)
    assert disk.listdir("logs/a/quarantine") == []
