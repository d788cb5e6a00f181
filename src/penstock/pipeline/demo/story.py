"""One thing after the other: send, wait until all of it is dealt with, stop, judge, show."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from penstock.client import ClientError, Endpoint, GroupAdmin, TopicAdmin
from penstock.core.model import SECOND
from penstock.pipeline.demo.exactness import Places, check_all
from penstock.pipeline.demo.following import Following, running_pipeline
from penstock.pipeline.demo.plot import draw_rollups
from penstock.pipeline.demo.report import Findings, Watch, show_report
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.generator import MetricStream, Plan, generate, send_closing
from penstock.pipeline.generator.points import open_points
from penstock.pipeline.metrics import PIPELINES
from penstock.runtime.loop import MachineClock

PARTITIONS = 6
SERIES = 72
INTERVAL_MS = 1_000
INGEST, ROLLUP = "metrics-ingest", "metrics-rollup"
LATE, DUPLICATES, MALFORMED = 0.05, 0.01, 0.01
# Small batches on purpose: the demo shows a stream, and each batch is a line.
SETTINGS = {"trigger": "1s", "max_offsets_per_trigger": "200000"}


class NotExact(PipelineError):
    """What the pipeline made of the records is not what it should be."""


def tell(bootstrap: str, directory: Path, messages: int, plot: Path) -> None:
    """Run the whole story against a broker; raises `NotExact` after the table if something is amiss."""
    watch = Watch()
    findings = Findings()
    endpoint = Endpoint(bootstrap)
    config = PIPELINES["metrics"].configure(
        None, {"bootstrap": bootstrap, "state_dir": str(directory), **SETTINGS}
    )
    TopicAdmin(endpoint).create(config.topics.inbound, PARTITIONS, -1, {})
    points = directory / "points.parquet"
    directory.mkdir(parents=True, exist_ok=True)
    watch.say("starting the pipeline: penstock pipeline run metrics")
    with running_pipeline(bootstrap, directory, SETTINGS) as following, open_points(points) as kept:
        stream = MetricStream(_plan(messages), kept.add)
        send(endpoint, config.topics.inbound, stream, findings, following, watch)
        await_ingested(endpoint, config.groups.ingest, findings, following, watch)
        await_rolled_up(endpoint, config.topics.inbound, stream, following, watch)
        watch.say("stopping the pipeline")
        following.stop()
    findings.batches = following.batches
    findings.lag_at_end = lag_of(endpoint, config.groups.ingest)
    places = Places(
        endpoint,
        config.raw_table,
        config.rollup_table,
        config.topics.rollup,
        config.topics.dead_letter,
        tuple(map(int, config.windows)),
    )
    for check in check_all(places, findings.account, points):
        watch.say(f"checked {check.name}: {'exact' if check.is_exact else 'NOT exact'}")
        findings.checks.append(check)
    findings.plot = draw_rollups(config.rollup_table, plot)
    watch.close()
    show_report(findings)
    if wrong := [check.name for check in findings.checks if not check.is_exact]:
        raise NotExact(f"not exact: {', '.join(wrong)}")


def _plan(messages: int) -> Plan:
    start_ms = MachineClock().wall() - -(-messages // SERIES) * INTERVAL_MS
    return Plan(messages, start_ms, SERIES, INTERVAL_MS, LATE, DUPLICATES, MALFORMED)


def send(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    findings: Findings,
    following: Following,
    watch: Watch,
) -> None:
    """Send everything as fast as the broker takes it, while the pipeline starts and begins to read."""
    watch.say(f"sending metrics to {topic}, some late, some repeated, some malformed")
    sent = 0

    def advance(records: int) -> None:
        nonlocal sent
        sent += records
        watch.show(sent, following)

    findings.outcome = generate(endpoint, topic, stream, advance=advance)
    watch.sent(findings.outcome)


def await_ingested(
    endpoint: Endpoint, group: str, findings: Findings, following: Following, watch: Watch
) -> None:
    """Wait until the broker says that the group has read everything."""
    clock = MachineClock()
    asked_at = 0

    def is_done() -> bool:
        nonlocal asked_at
        if clock.now() - asked_at < SECOND // 2:
            return False
        asked_at = clock.now()
        lag = lag_of(endpoint, group)
        findings.lag_records_max = max(findings.lag_records_max, lag or 0)
        return lag == 0

    following.wait_until("everything was read", is_done, lambda: watch.show(None, following))


def await_rolled_up(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    following: Following,
    watch: Watch,
) -> None:
    """Send the closing record, and wait until the rollup has closed every window before it."""
    watch.say("everything is read; a closing record ends the last windows")
    last_ms = stream.account.last_ms or 0
    send_closing(endpoint, topic, stream)
    is_done = _passed(following, last_ms)
    following.wait_until("the last windows were closed", is_done, lambda: watch.show(None, following))


def _passed(following: Following, last_ms: int) -> Callable[[], bool]:
    longest_ms = 3_600_000

    def is_done() -> bool:
        watermark = following.query(ROLLUP).get("watermark")
        if not watermark:
            return False
        return datetime.fromisoformat(watermark).timestamp() * 1_000 > last_ms + longest_ms

    return is_done


def lag_of(endpoint: Endpoint, group: str) -> int | None:
    """How many records the group has not read; unknown before it has committed anything."""
    try:
        partitions = GroupAdmin(endpoint).describe(group).partitions
    except ClientError:
        return None
    if len(partitions) < PARTITIONS or any(one.lag is None for one in partitions):
        return None
    return sum(one.lag or 0 for one in partitions)
