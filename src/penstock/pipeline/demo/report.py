"""What the demo shows: a line now and then on the way, and a table at the end."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.model import SECOND
from penstock.pipeline.demo.exactness import Check
from penstock.pipeline.demo.following import Following
from penstock.pipeline.generator import Account, Outcome
from penstock.runtime.loop import MachineClock

LINE_SECONDS = 5
MEGABYTE = 1_000_000
INGEST, ROLLUP = "metrics-ingest", "metrics-rollup"


@dataclass(slots=True)
class Findings:
    """What happened."""

    outcome: Outcome | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    lag_records_max: int = 0
    lag_at_end: int | None = None
    plot: Path | None = None

    @property
    def account(self) -> Account:
        assert self.outcome is not None
        return self.outcome.account


class Watch:
    """Progress for whoever waits: one line that moves on a terminal, lines elsewhere; on stderr."""

    def __init__(self) -> None:
        self._clock = MachineClock()
        self._began = self._shown_at = self._clock.now()
        self._is_live = sys.stderr.isatty()
        self._sent = 0

    def say(self, text: str) -> None:
        self.close()
        sys.stderr.write(f"[{(self._clock.now() - self._began) / SECOND:5.1f} s] {text}\n")
        sys.stderr.flush()

    def show(self, sent: int | None, following: Following) -> None:
        """The figures as they stand."""
        self._sent = self._sent if sent is None else sent
        pause = SECOND // 4 if self._is_live else LINE_SECONDS * SECOND
        if self._clock.now() - self._shown_at < pause:
            return
        self._shown_at = self._clock.now()
        line = f"{self._sent:,} sent, {_query(following.query(INGEST))}; {_query(following.query(ROLLUP))}"
        if self._is_live:
            sys.stderr.write(f"\r\x1b[K{line[:150]}")
            sys.stderr.flush()
        else:
            self.say(line)

    def sent(self, outcome: Outcome) -> None:
        rate = outcome.records / max(outcome.seconds, 1e-9)
        self.say(f"sent {outcome.records:,} records, {rate:,.0f}/s")

    def close(self) -> None:
        """Make room for what comes after the line that moves."""
        if self._is_live:
            sys.stderr.write("\r\x1b[K")


def _query(said: dict[str, Any]) -> str:
    if not said:
        return "Spark is starting"
    if "rows" not in said:
        return f"{said['name']} is in its first batch"
    lag = said.get("lag_records")
    behind = "" if lag is None else f", lag {lag:,}"
    return f"{said['name']}: {said['rows']:,} rows, {said['rows_per_second']:,.0f}/s{behind}"


def show_report(findings: Findings) -> None:
    """Print the table; a terminal gets colours, a file does not."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Metrics through Penstock and Spark", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(findings):
        table.add_row(name, value)
    Console().print(table)


def rows(findings: Findings) -> Iterator[tuple[str, str]]:
    """The lines of the table."""
    account, outcome = findings.account, findings.outcome
    assert outcome is not None
    checks = {check.name: check for check in findings.checks}
    size = f"{outcome.value_bytes / MEGABYTE:.1f} MB"
    yield "ingested", f"{account.records:,} records ({size}), {account.late:,} of them late"
    yield "stored", f"{checks['raw table'].found:,} in the raw table"
    yield (
        "duplicates removed",
        f"{_total(findings, INGEST, 'duplicates_dropped'):,} of {account.duplicates:,} sent",
    )
    yield "dead letters", f"{checks['dead letters'].found:,} of {account.malformed:,} malformed records"
    yield "rollups", f"{checks['rollup table'].found:,} windows of 1 and 5 minutes, in a table and in a topic"
    yield "dropped as late", f"{_total(findings, INGEST, 'rows_dropped_late'):,}"
    yield "exactness", _verdict(findings)
    yield (
        "send rate",
        f"{outcome.records / max(outcome.seconds, 1e-9):,.0f} records/s, acknowledged when on disk",
    )
    for name in (INGEST, ROLLUP):
        yield f"{name} rate", _rate(findings, name)
    yield "lag", f"{findings.lag_records_max:,} records at most, {findings.lag_at_end} at the end"
    yield "plot", str(findings.plot)


def _verdict(findings: Findings) -> str:
    repeats = sum(check.repeats for check in findings.checks)
    wrong = [
        f"{check.name} has {check.found:,} of {check.expected:,}"
        for check in findings.checks
        if not check.is_exact
    ]
    if wrong:
        return f"NOT exact: {'; '.join(wrong)}"
    names = ", ".join(check.name for check in findings.checks)
    return f"exact by count and content: {names}; {repeats} repeats in topics, told by their keys"


def _total(findings: Findings, query: str, name: str) -> int:
    """The last word of a query on something that adds up."""
    said = [batch[name] for batch in findings.batches if batch["name"] == query]
    return int(said[-1]) if said else 0


def _rate(findings: Findings, query: str) -> str:
    batches = [batch for batch in findings.batches if batch["name"] == query]
    seconds = sum(batch["batch_seconds"] for batch in batches)
    total = _total(findings, query, "rows")
    return f"{total / max(seconds, 1e-9):,.0f} rows/s over {len(batches)} batches, {seconds:.1f} s in all"
