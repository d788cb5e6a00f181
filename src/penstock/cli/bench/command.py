"""The commands of `penstock bench`."""

import sys
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any

import typer

from penstock.cli.bench.report import Results
from penstock.cli.bench.scenarios import BenchTarget
from penstock.cli.output import JSON_OPTION

app = typer.Typer(help="Measure a broker beside what the machine could do.", no_args_is_help=True)
BOOTSTRAP = typer.Option(
    None,
    "--bootstrap",
    metavar="HOST:PORT,...",
    help="Measure the broker there; without it a throw-away one is started.",
)
START = typer.Option(False, "--start", help="Start a throw-away broker; the default without --bootstrap.")
PID = typer.Option(None, "--pid", help="The broker's process, to tell its CPU and memory.")
SETTINGS = typer.Option(
    None, "--set", metavar="KEY=VALUE", help="A setting of the throw-away broker; may be repeated."
)
DIRECTORY = typer.Option(
    None, "--directory", metavar="DIR", help="Where the throw-away data directory is made."
)
SECONDS = typer.Option(60.0, "--seconds", min=1, max=3_600, help="The most time one measurement may take.")
LIMITS = typer.Option(True, "--limits/--no-limits", help="Measure the limits of client and machine too.")
OUTPUT = typer.Option(None, "--output", metavar="FILE", help="Keep the report as JSON.")
CODEC = typer.Option("none", "--codec", help="none, gzip, snappy, lz4 or zstd.")
PARTITIONS = typer.Option(1, "--partitions", min=1, max=10_000, help="Partitions of the topic.")
REPLICATION = typer.Option(
    1, "--replication", min=1, max=9, help="Replicas of the topic; the broker must have a cluster for it."
)
MESSAGES_MAX = 100_000_000


@app.command()
def produce(
    *,
    messages: int = typer.Option(1_000_000, "--messages", min=1, max=MESSAGES_MAX, help="How many records."),
    size: int = typer.Option(100, "--size", min=1, max=1 << 20, help="Bytes of each value."),
    rate: int | None = typer.Option(
        None, "--rate", min=1, help="Records a second; by default as many as possible."
    ),
    acks: str = typer.Option("1", "--acks", help="all, 1 or 0."),
    codec: str = CODEC,
    linger_ms: float = typer.Option(5.0, "--linger-ms", min=0, help="How long a batch waits for more."),
    batch_bytes: int = typer.Option(1_000_000, "--batch-bytes", min=1, help="Size at which a batch is sent."),
    partitions: int = PARTITIONS,
    replication: int = REPLICATION,
    seconds: float = SECONDS,
    limits: bool = LIMITS,
    bootstrap: str | None = BOOTSTRAP,
    start: bool = START,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many records librdkafka can send, and how long each takes."""
    from penstock.cli.bench import scenarios
    from penstock.cli.bench.scenarios import client_limit, disk_limits
    from penstock.client.load import ProduceLoad

    partition = 0 if partitions == 1 else -1
    load = ProduceLoad(messages, size, codec, acks, linger_ms, batch_bytes, rate, partition, seconds)
    results: Results = {}
    if limits:
        step("the client against itself")
        results["client limit"] = client_limit(load)
        step("the disk alone")
        results.update(disk_limits(directory or tempfile.gettempdir()))
    with _target(None if start else bootstrap, pid, settings, directory) as target:
        step(f"producing to {target.name}")
        results["produce"] = scenarios.produce(replace(target, replication=replication), load, partitions)
        _finish(target, results, output, as_json)


@app.command()
def consume(
    *,
    messages: int = typer.Option(1_000_000, "--messages", min=1, max=MESSAGES_MAX, help="How many records."),
    size: int = typer.Option(1_000, "--size", min=1, max=1 << 20, help="Bytes of each value."),
    codec: str = CODEC,
    partitions: int = PARTITIONS,
    replication: int = REPLICATION,
    seconds: float = SECONDS,
    bootstrap: str | None = BOOTSTRAP,
    start: bool = START,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many records librdkafka can read, after as many were written."""
    from penstock.cli.bench import scenarios
    from penstock.client.load import ProduceLoad

    load = ProduceLoad(messages, size, codec, partition=0 if partitions == 1 else -1, seconds_max=seconds)
    with _target(None if start else bootstrap, pid, settings, directory) as target:
        step(f"filling and reading {target.name}")
        replicated = replace(target, replication=replication)
        results = {"consume": scenarios.consume(replicated, load, partitions)}
        _finish(target, results, output, as_json)


@app.command()
def latency(
    *,
    messages: int = typer.Option(5_000, "--messages", min=1, max=10_000_000, help="How many requests."),
    size: int = typer.Option(100, "--size", min=1, max=1 << 20, help="Bytes of the one record in each."),
    acks: str = typer.Option("1", "--acks", help="all or 1."),
    partitions: int = PARTITIONS,
    connections: int = typer.Option(1, "--connections", min=1, max=10_000, help="Take turns on so many."),
    readers: int = typer.Option(
        0, "--readers", min=0, max=16, help="So many processes fetch meanwhile, as fast as they can."
    ),
    seconds: float = SECONDS,
    limits: bool = LIMITS,
    bootstrap: str | None = BOOTSTRAP,
    start: bool = START,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How long one Produce of one record takes, on plain sockets, one after the other."""
    from penstock.cli.bench import scenarios
    from penstock.cli.bench.scenarios import RoundTripPlan, disk_limits, socket_limit

    plan = RoundTripPlan(
        messages, size, -1 if acks == "all" else 1, partitions, connections, readers, seconds
    )
    results: Results = {}
    if limits:
        step("the disk and the sockets alone")
        results.update(disk_limits(directory or tempfile.gettempdir()))
        results["socket round trip"] = socket_limit()
    with _target(None if start else bootstrap, pid, settings, directory) as target:
        step(f"publishing to {target.name}")
        results["publish depth 1"] = scenarios.latency(target, plan)
        results["fetch empty"] = scenarios.empty_fetch(target, messages)
        _finish(target, results, output, as_json)


@app.command("end-to-end")
def end_to_end(
    *,
    messages: int = typer.Option(50_000, "--messages", min=1, max=10_000_000, help="How many records."),
    rate: int = typer.Option(10_000, "--rate", min=1, max=1_000_000, help="Records a second."),
    size: int = typer.Option(100, "--size", min=8, max=1 << 20, help="Bytes of each value."),
    seconds: float = SECONDS,
    bootstrap: str | None = BOOTSTRAP,
    start: bool = START,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How long a record takes from a producer to a consumer that waits for it."""
    from penstock.cli.bench import scenarios

    with _target(None if start else bootstrap, pid, settings, directory) as target:
        step(f"through {target.name}")
        results = {"end to end": scenarios.end_to_end(target, messages, rate, size, seconds)}
        _finish(target, results, output, as_json)


@app.command("compare")
def compare_(
    *,
    peers: list[str] | None = typer.Option(
        None,
        "--peer",
        metavar="NAME=HOST:PORT@PID",
        help="Another Kafka broker; name and process may be left out. May be repeated.",
    ),
    messages: int = typer.Option(500_000, "--messages", min=1_000, max=MESSAGES_MAX, help="Records to send."),
    limits: bool = LIMITS,
    bootstrap: str | None = BOOTSTRAP,
    start: bool = START,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """The same measurements against several brokers in one run, with ratios."""
    from penstock.cli.bench import compare as comparing
    from penstock.cli.bench.report import keep, report, show_figures
    from penstock.cli.bench.scenarios import client_limit, disk_limits, parse_peer, socket_limit
    from penstock.cli.output import show_json
    from penstock.client.load import ProduceLoad

    others = [parse_peer(text) for text in peers or ()]
    found: Results = {}
    if limits:
        step("limits of client and machine")
        found = {
            "client limit 100 B": client_limit(ProduceLoad(messages, 100, partition=0)),
            "client limit 1 KB": client_limit(ProduceLoad(messages // 2, 1_000, partition=0)),
            **disk_limits(directory or tempfile.gettempdir()),
            "socket round trip": socket_limit(),
        }
    with _target(None if start else bootstrap, pid, settings, directory) as target:
        results = comparing.compare([target, *others], comparing.plan(messages), step)
    whole = report(results, {"limits": found})
    keep(whole, output)
    if as_json:
        show_json(whole)
        return
    show_figures(found)
    comparing.show_comparison(results)


BATCH = typer.Option(100, "--batch", min=1, max=10_000, help="Messages in a request.")
URL = typer.Option(
    None,
    "--url",
    metavar="URL",
    help="Measure the server there (https://… with TLS), as the owner of the API key in `PENSTOCK_API_KEY`, "
    "or as the user of --command-config; without it a throw-away broker is started.",
)
AHEAD = typer.Option(8, "--ahead", min=1, max=64, help="Requests that each has under way.")
QUEUE_PARTITIONS = typer.Option(2, "--partitions", min=1, max=10_000, help="Partitions of the topic.")
VALUE_BYTES = typer.Option(100, "--size", min=1, max=1 << 20, help="Bytes of each value.")


@app.command()
def queue(
    *,
    messages: int = typer.Option(100_000, "--messages", min=1, max=MESSAGES_MAX, help="How many messages."),
    batch: int = typer.Option(500, "--batch", min=1, max=1_000, help="Messages that are leased at once."),
    size: int = VALUE_BYTES,
    workers: int = typer.Option(4, "--workers", min=1, max=1_000, help="Consumers at once."),
    partitions: int = QUEUE_PARTITIONS,
    seconds: float = SECONDS,
    bootstrap: str | None = BOOTSTRAP,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many messages a queue takes, and how many workers receive and acknowledge."""
    from penstock.cli.bench import queue_load

    load = queue_load.QueueLoad(messages, batch, size, partitions, workers, seconds)
    results: Results = {}
    with _target(bootstrap, pid, settings, directory) as target, target.topic(partitions) as topic:
        where = target.endpoint
        step(f"publishing to {target.name}")
        results["publish"] = target.load(lambda: queue_load.fill(where, topic, load), size)
        step("receiving and acknowledging")
        filled = replace(load, messages=int(results["publish"]["messages"]))
        results["receive and ack"] = target.load(
            lambda: queue_load.receive_and_ack(where, topic, "bench", filled), size
        )
        _finish_lines(target, results, output, as_json)


@app.command()
def rest(
    *,
    messages: int = typer.Option(
        100_000, "--messages", min=1, max=MESSAGES_MAX, help="How many messages in each case."
    ),
    batch: int = BATCH,
    size: int = VALUE_BYTES,
    connections: int = typer.Option(
        32, "--connections", min=1, max=1_000, help="One request at a time each."
    ),
    partitions: int = QUEUE_PARTITIONS,
    seconds: float = SECONDS,
    url: str | None = URL,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many messages REST takes, one in a request and in batches."""
    from penstock.cli.bench.gateway_load import GatewayLoad, publish_rest, rest_topic

    results: Results = {}
    with _gateway(url, pid, settings, directory) as (target, server):
        for name, count in (("publish", 1), (f"batch of {batch}", batch)):
            load = GatewayLoad(messages, count, size, connections, seconds_max=seconds)
            with rest_topic(server, partitions) as topic:
                step(f"{name} over REST to {target.name}")
                results[name] = target.load(partial(publish_rest, server, topic, load), size)
        _finish_lines(target, results, output, as_json)


@app.command()
def grpc(
    *,
    messages: int = typer.Option(500_000, "--messages", min=1, max=MESSAGES_MAX, help="How many messages."),
    batch: int = typer.Option(500, "--batch", min=1, max=10_000, help="Messages in a request of the stream."),
    size: int = VALUE_BYTES,
    streams: int = typer.Option(2, "--streams", min=1, max=1_000, help="Streams at once."),
    ahead: int = AHEAD,
    partitions: int = QUEUE_PARTITIONS,
    seconds: float = SECONDS,
    url: str | None = URL,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many messages PublishStream of gRPC takes."""
    from penstock.cli.bench.gateway_load import GatewayLoad, grpc_topic, publish_grpc

    load = GatewayLoad(messages, batch, size, streams, ahead, seconds)
    with _gateway(url, pid, settings, directory, is_grpc=True) as (target, server):
        with grpc_topic(server, partitions) as topic:
            step(f"publishing over gRPC to {target.name}")
            results = {"publish stream": target.load(lambda: publish_grpc(server, topic, load), size)}
        _finish_lines(target, results, output, as_json)


@app.command()
def websocket(
    *,
    messages: int = typer.Option(200_000, "--messages", min=1, max=MESSAGES_MAX, help="How many messages."),
    batch: int = typer.Option(100, "--batch", min=1, max=500, help="Messages in a frame."),
    size: int = VALUE_BYTES,
    connections: int = typer.Option(4, "--connections", min=1, max=1_000, help="Connections at once."),
    ahead: int = AHEAD,
    partitions: int = QUEUE_PARTITIONS,
    seconds: float = SECONDS,
    url: str | None = URL,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How many messages are enqueued over WebSocket, and dequeued and acknowledged."""
    from penstock.cli.bench.gateway_load import GatewayLoad, dequeue_websocket, enqueue_websocket, rest_topic

    load = GatewayLoad(messages, batch, size, connections, ahead, seconds)
    results: Results = {}
    with _gateway(url, pid, settings, directory) as (target, server):
        with rest_topic(server, partitions) as topic:
            step(f"enqueueing over WebSocket to {target.name}")
            results["enqueue"] = target.load(lambda: enqueue_websocket(server, topic, load), size)
            step("dequeueing and acknowledging")
            filled = replace(load, messages=int(results["enqueue"]["messages"]), ahead=min(ahead, 2))
            results["dequeue and ack"] = target.load(
                lambda: dequeue_websocket(server, topic, "bench", filled), size
            )
        _finish_lines(target, results, output, as_json)


@app.command("delay")
def delay_(
    *,
    messages: int = typer.Option(50_000, "--messages", min=1, max=10_000_000, help="How many messages."),
    rate: int = typer.Option(10_000, "--rate", min=1, max=1_000_000, help="Messages a second."),
    delay_ms: int = typer.Option(
        1_000, "--delay-ms", min=0, max=3_600_000, help="How much later each is due."
    ),
    size: int = typer.Option(100, "--size", min=16, max=1 << 20, help="Bytes of each value."),
    partitions: int = typer.Option(4, "--partitions", min=1, max=1_000, help="Of the topic."),
    bootstrap: str | None = BOOTSTRAP,
    pid: int | None = PID,
    settings: list[str] | None = SETTINGS,
    directory: str | None = DIRECTORY,
    output: str | None = OUTPUT,
    as_json: bool = JSON_OPTION,
) -> None:
    """How late delayed messages are published, as a consumer sees it.

    One process schedules them and another reads them, while a third looks how long the broker lets others
    wait. Each is due so much after its turn.
    """
    from penstock.cli.bench import delay_load, scenarios

    load = delay_load.DelayLoad(messages, rate, delay_ms, size, partitions)
    with _target(bootstrap, pid, settings, directory) as target:
        step(f"delaying at {target.name}")
        results = {"delay": scenarios.delayed(target, load)}
        _finish_lines(target, results, output, as_json)


def step(what: str) -> None:
    """Say what is measured now; on stderr, so that stdout stays what was asked for."""
    sys.stderr.write(f"{what} …\n")


def _target(bootstrap: str | None, pid: int | None, settings: list[str] | None, directory: str | None) -> Any:
    from penstock.cli.bench.scenarios import target

    return target(bootstrap, pid, settings or (), directory)


def _gateway(
    url: str | None,
    pid: int | None,
    settings: list[str] | None,
    directory: str | None,
    *,
    is_grpc: bool = False,
) -> Any:
    from penstock.cli.bench.scenarios import gateway_target

    return gateway_target(url, pid, settings or (), directory, is_grpc=is_grpc)


def _finish(target: "BenchTarget", results: "Results", output: str | None, as_json: bool) -> None:
    from penstock.cli.bench.report import show

    show(_with_broker(target, results), {"target": target.name}, as_json, output)


def _finish_lines(target: "BenchTarget", results: "Results", output: str | None, as_json: bool) -> None:
    from penstock.cli.bench.report import show_lines

    show_lines(_with_broker(target, results), {"target": target.name}, as_json, output)


def _with_broker(target: "BenchTarget", results: "Results") -> "Results":
    if target.start_ms is None or target.idle_rss_mb is None:
        return results
    broker = {"start_ms": round(target.start_ms, 1), "idle_rss_mb": round(target.idle_rss_mb, 1)}
    return {**results, "broker": broker}
