"""The log engine's demo: one stage after the other, and a table at the end."""

PARTITIONS = 4


def show_log_engine(messages: int) -> None:
    """Write, read, seek, crash and recover."""
    import tempfile
    from uuid import UUID

    from penstock.cli.demo.engine.batches import share_out
    from penstock.cli.demo.engine.crash import crash_and_recover
    from penstock.cli.demo.engine.produce import OPTIONS, produce
    from penstock.cli.demo.engine.readback import ReadBack, read_back, seek
    from penstock.cli.demo.engine.report import show_report
    from penstock.cli.output import progress_bar
    from penstock.core.model import TopicId
    from penstock.runtime.clock import MachineClock, MachineEntropy
    from penstock.storage.disk import PosixDisk
    from penstock.storage.log import PartitionLog

    clock = MachineClock()
    topic_id = TopicId(UUID(bytes=MachineEntropy().bytes(16)))
    first_timestamp = clock.wall() - messages * 14  # 72 measurements a second, up to about now
    directories = [f"logs/metrics/{partition}" for partition in range(PARTITIONS)]
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as root:
        disk = PosixDisk(root)
        with progress_bar(f"making up {messages} measurements", messages) as advance:
            shares = share_out(messages, PARTITIONS, first_timestamp, advance)
        with progress_bar(f"appending them to {PARTITIONS} partitions", messages) as advance:
            produced = produce(disk, directories, topic_id, shares, advance)
        result = ReadBack()
        with progress_bar("reading them back", messages) as advance:
            for directory, share in zip(directories, shares, strict=True):
                log, _ = PartitionLog.open(disk, directory, topic_id, OPTIONS)
                read_back(log, share, clock.now, result, advance)
                seek(log, share, clock.now, result)
                log.close()
        with progress_bar("killing a writer in the middle of a write", 1) as advance:
            crash = crash_and_recover(disk, "logs/crash/0", topic_id, first_timestamp, clock.now)
            advance(1)
        show_report(produced, result, crash)
