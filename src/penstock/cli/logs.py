"""`penstock log`: what lies in a partition directory, and whether it is sound."""

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.log_inspection import Finding, PartitionFiles, SegmentStats
from penstock.cli.output import JSON_OPTION, counted, progress_bar, say, show_json, show_table

if TYPE_CHECKING:
    from penstock.core.records import Record
    from penstock.storage.sealing import KeyVault

app = typer.Typer(help="Look into partition directories, without changing anything.", no_args_is_help=True)
CONFIG_OPTION = typer.Option(
    None,
    "--config",
    metavar="FILE",
    help="The node's configuration: where the keys of encrypted batches are.",
)
DIRECTORY = typer.Argument(metavar="DIR", help="A partition's directory, or one above several.")


@app.command()
def inspect(directory: str = DIRECTORY, as_json: bool = JSON_OPTION) -> None:
    """Show the segments of a partition: offsets, batches, records, times and codecs."""
    from penstock.cli.log_inspection import partitions_below, read_partition, survey

    partitions = [(found, survey(found)) for found in map(read_partition, partitions_below(directory))]
    if as_json:
        show_json([_partition_json(partition, segments) for partition, segments in partitions])
        return
    for partition, segments in partitions:
        say(_headline(partition))
        show_table(
            "",
            ("segment", "end", "batches", "records", "bytes", "first", "last", "codecs", "state"),
            map(_row, segments),
        )


@app.command()
def verify(
    directory: str = DIRECTORY, config: str | None = CONFIG_OPTION, as_json: bool = JSON_OPTION
) -> None:
    """Read every byte of a partition and check it; exit with 1 if anything is damaged or unreadable.

    Of encrypted batches everything is checked with the node's --config, and CRCs without it.
    """
    from penstock.cli.log_inspection import Severity, partitions_below, read_partition
    from penstock.cli.log_inspection import verify as verify_partition
    from penstock.core.model import CorruptionError

    vault = None if config is None else _vault(config)
    partitions = [read_partition(path, vault) for path in partitions_below(directory)]
    findings: list[tuple[str, Finding]] = []
    with progress_bar("verifying", sum(partition.size_bytes for partition in partitions)) as advance:
        for partition in partitions:
            findings.extend((partition.path, finding) for finding in verify_partition(partition, advance))
    if as_json:
        show_json([_finding_json(path, finding) for path, finding in findings])
    else:
        for path, finding in findings:
            place = "" if finding.position is None else f" at {finding.position}"
            place += "" if finding.offset is None else f", offset {finding.offset}"
            say(f"{finding.meaning.value:<11} {path}/{finding.file}{place}: {finding.what}")
    count = Counter(finding.meaning for _, finding in findings)
    wrong = [
        counted(count[meaning], name)
        for meaning, name in ((Severity.DAMAGE, "damaged place"), (Severity.UNREADABLE, "unreadable place"))
        if count[meaning]
    ]
    if wrong:
        raise CorruptionError(f"{directory}: {', '.join(wrong)}")
    if not as_json:
        total = sum(partition.size_bytes for partition in partitions)
        say(f"sound: {counted(len(partitions), 'partition')}, {total} bytes")


@app.command()
def quarantine(
    directory: str = DIRECTORY,
    config: str | None = CONFIG_OPTION,
    as_records: bool = typer.Option(False, "--records", help="Every record, as a JSON object on a line."),
) -> None:
    """Show what was taken out of partitions and is kept in their quarantine, as far as it can be read.

    Encrypted batches need the node's --config. Exits with 1 if there is a batch that cannot be opened.
    """
    from penstock.cli.log_inspection import partitions_below, quarantined_batches, quarantined_files
    from penstock.cli.log_inspection import read_partition as read
    from penstock.storage.log.file_names import QUARANTINE

    vault = None if config is None else _vault(config)
    paths = [path for path in partitions_below(directory) if os.path.basename(path) != QUARANTINE]
    rows, is_whole = list[tuple[object, ...]](), True
    for partition in (read(path, vault) for path in paths):
        for name in quarantined_files(partition):
            count = records = 0
            start: object = "-"
            end: object = "-"
            trouble = ""
            for batch in quarantined_batches(partition, name):
                start = start if count else batch.header.base_offset
                end, trouble = batch.header.next_offset, trouble or batch.trouble
                count, records = count + 1, records + len(batch.records)
                if as_records:
                    sys.stdout.writelines(_record_line(partition.path, record) for record in batch.records)
            size = partition.disk.size(name)
            rows.append((f"{partition.path}/{name}", start, end, count, records, size, trouble or "-"))
            is_whole = is_whole and not trouble
    if not as_records:
        show_table("", ("file", "first", "end", "batches", "records", "bytes", "trouble"), rows)
    if not is_whole:
        raise typer.Exit(1)


def _record_line(path: str, record: "Record") -> str:
    import json

    from penstock.cli.consume import text_fields

    shown = {
        "path": path,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **text_fields("key", record.key),
        **text_fields("value", record.value),
        "headers": [{"name": name, **text_fields("value", value)} for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")) + "\n"


def _vault(config: str) -> "KeyVault | None":
    """The master keys of a node."""
    from penstock.config import load
    from penstock.node import options_from
    from penstock.node.run import open_vault

    return open_vault(options_from(load(config, os.environ, []).config))


def _headline(partition: "PartitionFiles") -> str:
    checkpoint = partition.checkpoint
    durable = f"checkpoint {checkpoint.recovery_point}" if checkpoint else "no checkpoint"
    start = f", starts at {checkpoint.log_start}" if checkpoint and checkpoint.log_start else ""
    return f"{partition.path}: topic {partition.topic_id or 'unknown'}, {durable}{start}"


def _row(segment: "SegmentStats") -> tuple[object, ...]:
    codecs = ", ".join(f"{codec} {count}" for codec, count in segment.codecs.items())
    whole = "whole, encrypted" if segment.sealed_batches else "whole"
    state = whole if segment.broken_at is None else f"broken at {segment.broken_at}: {segment.broken_why}"
    return (
        segment.base_offset,
        segment.end_offset,
        segment.batches,
        segment.records,
        segment.size_bytes,
        _moment(segment.first_timestamp),
        _moment(segment.max_timestamp),
        codecs,
        state,
    )


def _moment(timestamp_ms: int) -> str:
    from datetime import UTC, datetime

    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            if timestamp_ms >= 0
            else "-"
        )
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def _partition_json(partition: "PartitionFiles", segments: "list[SegmentStats]") -> dict[str, Any]:
    from dataclasses import asdict

    checkpoint = partition.checkpoint
    return {
        "path": partition.path,
        "topic_id": str(partition.topic_id) if partition.topic_id else None,
        "log_start_offset": checkpoint.log_start if checkpoint else None,
        "recovery_point": checkpoint.recovery_point if checkpoint else None,
        "high_watermark": checkpoint.high_watermark if checkpoint else None,
        "leader_epochs": [list(entry) for entry in partition.epochs.entries()] if partition.epochs else [],
        "unreadable": partition.unreadable,
        "segments": [asdict(segment) for segment in segments],
    }


def _finding_json(path: str, finding: "Finding") -> dict[str, Any]:
    return {
        "path": path,
        "file": finding.file,
        "position": finding.position,
        "offset": finding.offset,
        "meaning": finding.meaning.value,
        "what": finding.what,
    }
