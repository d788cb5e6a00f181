"""The log engine as a library: make a log, append, read back, reopen.

python examples/log_engine.py [DIRECTORY]    # by default one that is removed at the end
"""

import sys
from tempfile import TemporaryDirectory
from uuid import UUID

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import Record, check_batches, read_records, write_batch
from penstock.storage.disk import PosixDisk
from penstock.storage.log import PartitionLog

TOPIC_ID = TopicId(UUID("00000000-0000-0000-0000-00000000cafe"))


def main(directory: str) -> None:
    disk = PosixDisk(directory)
    log = PartitionLog.create(disk, "greetings/0", TOPIC_ID)

    now = Timestamp(1_700_000_000_000)
    batch = write_batch([Record(0, now, b"en", b"hello"), Record(0, now, b"fr", b"bonjour")])
    appended = log.append(batch, check_batches(batch), LeaderEpoch(0), now)
    log.close()  # makes everything durable; a broker calls log.sync(done) instead

    log, report = PartitionLog.open(disk, "greetings/0", TOPIC_ID)
    print(
        f"offsets {appended.first_offset} to {appended.last_offset}, {report.bytes_read} bytes read at start"
    )
    for record in read_records(log.read(Offset(0), 1 << 20).to_bytes()):
        print(record.offset, record.key, record.value)
    log.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with TemporaryDirectory(prefix="penstock-") as directory:
            main(directory)
