"""A quick pass over a partition: the batch headers of every segment."""

from dataclasses import dataclass, field

from penstock.cli.inspection.directory import PartitionFiles
from penstock.core.model import CorruptionError
from penstock.core.records import BatchHeader
from penstock.storage.log.file_names import LOG, numbered
from penstock.storage.log.segment import SCAN_BYTES, headers


@dataclass(slots=True)
class SegmentSurvey:
    """What the headers of one segment say."""

    base_offset: int
    size_bytes: int
    end_offset: int
    batches: int = 0
    records: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    codecs: dict[str, int] = field(default_factory=dict)
    control_batches: int = 0
    transactional_batches: int = 0
    # Where the headers stop making sense, and why; None if they go on to the end of the file.
    broken_at: int | None = None
    broken_why: str = ""

    def note(self, header: BatchHeader) -> None:
        self.end_offset = header.next_offset
        self.batches += 1
        self.records += header.record_count
        if self.first_timestamp < 0:
            self.first_timestamp = header.base_timestamp
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        codec = header.codec.name.lower()
        self.codecs[codec] = self.codecs.get(codec, 0) + 1
        self.control_batches += header.is_control
        self.transactional_batches += header.is_transactional


def survey(partition: PartitionFiles) -> list[SegmentSurvey]:
    """Every segment of a partition, oldest first."""
    return [_survey_segment(partition, base, size) for base, size in partition.segments.items()]


def _survey_segment(partition: PartitionFiles, base_offset: int, size_bytes: int) -> SegmentSurvey:
    found = SegmentSurvey(base_offset, size_bytes, base_offset)
    position = 0
    file = partition.disk.open(numbered(base_offset, LOG), readonly=True)
    try:
        for placed in headers(file, 0, size_bytes, SCAN_BYTES):
            found.note(placed.header)
            position = placed.position + placed.header.size_bytes
    except CorruptionError as error:
        found.broken_at, found.broken_why = position, str(error)
    finally:
        file.close()
    return found
