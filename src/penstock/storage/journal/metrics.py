"""What operators see of the journal."""

from penstock.observability import Metrics


class JournalMetrics(Metrics):
    """What is written to the journal, how much of it is needed, and what it has given back."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = self.counter("penstock_sync_rounds_total", "Rounds in which files were synced.").of()
        self.synced_files = self.counter(
            "penstock_sync_files_total", "Files that were synced in these rounds, one by one."
        ).of()
        self.frames = self.counter(
            "penstock_journal_frames_total",
            "Frames that were written to the journal: rounds that needed one.",
        ).of()
        self.written_bytes = self.counter(
            "penstock_journal_bytes_total", "Bytes of frames that were written to the journal."
        ).of()
        self.marks = self.counter(
            "penstock_journal_marks_total", "Entries that say how far a log's own files are durable."
        ).of()
        self.failures = self.counter(
            "penstock_journal_failures_total",
            "How often the journal failed, so that logs sync their own files until the next start.",
        ).of()
        self.restored_records = self.counter(
            "penstock_journal_restored_records_total",
            "Offsets that logs had lost or damaged, and that were taken from the journal at the start.",
        ).of()
        self.files = self.gauge("penstock_journal_files", "Files of the journal that some log needs.")
        self.size_bytes = self.gauge(
            "penstock_journal_size_bytes", "Bytes of the files that some log needs, and of the growing one."
        )
        self.oldest_seconds = self.gauge(
            "penstock_journal_oldest_file_seconds",
            "Since when the oldest file that some log needs is in use; grows if a log cannot be synced.",
        )
