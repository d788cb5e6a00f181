"""What deleted topics leave behind: directories whose removal a crash or a stop came before."""

from collections.abc import Callable, Iterator

from penstock.core.model import TopicPartition
from penstock.runtime import Entropy
from penstock.storage.data_directory import LOGS, partition_path
from penstock.storage.disk import Disk

DELETED = ".deleted"


def doomed_path(partition: TopicPartition, entropy: Entropy) -> str:
    """Where a deleted partition's directory waits for its removal, out of the way of its name."""
    return f"{partition_path(partition)}.{entropy.bytes(8).hex()}{DELETED}"


def find_leftovers(disk: Disk, is_topic: Callable[[str], bool]) -> Iterator[str]:
    """The directories that wait for their removal; those of topics that are gone and empty go at once."""
    if not disk.is_directory(LOGS):
        return
    for topic in disk.listdir(LOGS):
        path = f"{LOGS}/{topic}"
        if not disk.is_directory(path):
            continue
        names = disk.listdir(path)
        if not names and not is_topic(topic):
            disk.remove_tree(path)
        yield from (f"{path}/{name}" for name in names if name.endswith(DELETED))
