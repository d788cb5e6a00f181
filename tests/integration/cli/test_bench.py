import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.child import BrokerProcess
from tests.integration.cli.conftest import columns

Run = Callable[..., subprocess.CompletedProcess[str]]
POINTS = {"p50_us", "p90_us", "p99_us", "p999_us", "max_us"}


def figures(ended: subprocess.CompletedProcess[str]) -> dict[str, dict[str, float]]:
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert {"commit", "when", "machine", "penstock", "results"} <= set(report)
    assert {"cpu", "cores", "kernel", "python", "load"} == set(report["machine"])
    results: dict[str, dict[str, float]] = report["results"]
    return results


def test_producing_is_measured_beside_its_limits(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "produce", "--messages", "5000", "--json"),
        *("--bootstrap", broker.bootstrap, "--pid", str(broker.pid)),
    )

    results = figures(ended)
    assert list(results) == ["client limit", "raw_append_1mb", "raw_fdatasync_4kb", "produce"]
    assert {"messages_per_s", "mb_per_s", "requests", "broker_rss_mb", "client_cpu_s"} <= set(
        results["produce"]
    )
    assert {"broker_cpu_us_per_produce", *POINTS} <= set(results["produce"])
    assert results["produce"]["messages_per_s"] > 0
    assert results["produce"]["requests"] > 0
    assert results["raw_fdatasync_4kb"].keys() == POINTS


def test_a_rate_and_a_codec_and_partitions_can_be_chosen(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "produce", "--messages", "1000", "--rate", "5000", "--codec", "lz4", "--acks", "all"),
        *("--size", "500", "--partitions", "3", "--no-limits", "--json", "--bootstrap", broker.bootstrap),
    )

    results = figures(ended)
    assert list(results) == ["produce"]
    # A fifth of a second is the least that this rate allows.
    assert results["produce"]["messages_per_s"] <= 5_100
    assert "broker_cpu_s" not in results["produce"]


def test_consuming_is_measured(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "consume", "--messages", "5000", "--partitions", "2", "--json"),
        *("--bootstrap", broker.bootstrap),
    )

    assert {"messages_per_s", "mb_per_s", "first_ms"} <= set(figures(ended)["consume"])


def test_latency_is_measured_with_readers_beside_it(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *(
            "bench",
            "latency",
            "--messages",
            "200",
            "--readers",
            "1",
            "--connections",
            "2",
            "--partitions",
            "2",
        ),
        *("--json", "--bootstrap", broker.bootstrap, "--pid", str(broker.pid)),
    )

    results = figures(ended)
    assert {"raw_fdatasync_4kb", "socket round trip", "publish depth 1", "fetch empty"} <= set(results)
    assert results["publish depth 1"]["requests"] == 200
    assert {"broker_cpu_us_per_produce", *POINTS} <= set(results["publish depth 1"])
    assert "broker_cpu_us_per_fetch" in results["fetch empty"]


def test_end_to_end_is_measured(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "end-to-end", "--messages", "500", "--rate", "1000", "--json"),
        *("--bootstrap", broker.bootstrap),
    )

    assert set(figures(ended)["end to end"]) >= POINTS


COST = {"broker_cpu_us_per_message", "gateway_cpu_us_per_message", "client_cpu_us_per_message"}


def test_queues_are_measured(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "queue", "--messages", "300", "--batch", "40", "--workers", "2", "--json"),
        *("--bootstrap", broker.bootstrap, "--pid", str(broker.pid)),
    )

    results = figures(ended)
    assert list(results) == ["publish", "receive and ack"]
    for one in results.values():
        assert one["messages"] == 300
        assert one["messages_per_s"] > 0
        assert set(one) >= COST | POINTS


def test_rest_is_measured_one_by_one_and_in_batches(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "rest", "--messages", "200", "--batch", "50", "--connections", "3", "--json"),
        *("--url", f"http://{broker.http}", "--pid", str(broker.pid)),
    )

    results = figures(ended)
    assert list(results) == ["publish", "batch of 50"]
    for one in results.values():
        assert one["messages"] == 200
        assert one["gateway_cpu_us_per_message"] > 0
        assert set(one) >= COST | POINTS


def test_grpc_is_measured(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "grpc", "--messages", "200", "--batch", "50", "--streams", "2", "--ahead", "2", "--json"),
        *("--url", broker.grpc, "--pid", str(broker.pid)),
    )

    result = figures(ended)["publish stream"]
    assert result["messages"] == 200
    assert set(result) >= COST | POINTS


def test_websockets_are_measured_both_ways(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "websocket", "--messages", "200", "--batch", "50", "--connections", "2", "--json"),
        *("--url", f"http://{broker.http}", "--pid", str(broker.pid)),
    )

    results = figures(ended)
    assert list(results) == ["enqueue", "dequeue and ack"]
    for one in results.values():
        assert one["messages"] == 200
        assert set(one) >= COST | POINTS


def test_delays_are_measured_by_how_late_messages_are(run: Run, broker: BrokerProcess) -> None:
    ended = run(
        *("bench", "delay", "--messages", "100", "--rate", "1000", "--delay-ms", "50", "--json"),
        *("--bootstrap", broker.bootstrap, "--pid", str(broker.pid)),
    )

    result = figures(ended)["delay"]
    assert result["messages"] == 100
    assert {"late_p50_us", "late_p99_us", "late_max_us", "sender_late_ms"} | COST <= set(result)
    assert result["late_p50_us"] >= 0


def test_a_server_is_measured_in_one_line_each(run: Run, broker: BrokerProcess) -> None:
    ended = run("bench", "rest", "--messages", "50", "--batch", "10", "--url", broker.http)

    assert ended.returncode == 0, ended.stderr
    one, many = ended.stdout.splitlines()
    assert re.fullmatch(
        r"publish +[\d,]+ messages/s  p50 [\d.,]+ ms  p99 [\d.,]+ ms  CPU µs per message: client [\d.,]+", one
    )
    assert many.startswith("batch of 10 ")


def test_a_gateway_of_our_own_is_started_and_removed(run: Run, tmp_path: Path) -> None:
    ended = run("bench", "rest", "--messages", "50", "--batch", "10", "--directory", str(tmp_path), "--json")

    results = figures(ended)
    assert results["broker"].keys() == {"start_ms", "idle_rss_mb"}
    assert results["publish"]["gateway_cpu_us_per_message"] > 0
    assert os.listdir(tmp_path) == []


def test_without_a_broker_one_is_started_and_removed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    ended = run(
        *("bench", "consume", "--messages", "100", "--json", "--output", "kept/report.json"),
        *("--directory", str(tmp_path), "--set", "storage.fsync.mode=none"),
    )

    figures(ended)
    kept = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert kept == json.loads(ended.stdout)
    assert kept["target"] == "penstock"
    assert kept["results"]["broker"].keys() == {"start_ms", "idle_rss_mb"}
    assert os.listdir(tmp_path) == ["kept"]


def test_peers_are_compared_in_one_run_with_ratios(run: Run, broker: BrokerProcess) -> None:
    arguments = (
        *(
            "bench",
            "compare",
            "--messages",
            "1000",
            "--bootstrap",
            broker.bootstrap,
            "--pid",
            str(broker.pid),
        ),
        *("--peer", f"twin={broker.bootstrap}@{broker.pid}", "--no-limits"),
    )

    as_table = run(*arguments, "--output", "report.json")

    assert as_table.returncode == 0, as_table.stderr
    rows = {tuple(row[:2]): row[2:] for row in columns(as_table.stdout)}
    ours, theirs, ratio = rows["produce 100 B", "messages_per_s"]
    assert float(ratio) == pytest.approx(
        float(ours.replace(",", "")) / float(theirs.replace(",", "")), abs=0.01
    )
    ours, theirs, ratio = rows["publish depth 1", "p50_us"]
    assert float(ratio) == pytest.approx(
        float(theirs.replace(",", "")) / float(ours.replace(",", "")), abs=0.01
    )
    results = json.loads(Path("report.json").read_text())["results"]
    assert list(results) == ["broker", "twin"]
    assert set(results["twin"]) == {
        "produce 100 B",
        "produce 1 KB",
        "consume 1 KB",
        "publish depth 1",
        "fetch empty",
        "end to end",
    }


def test_the_topics_of_a_measurement_are_deleted(run: Run, broker: BrokerProcess) -> None:
    run("bench", "consume", "--messages", "100", "--bootstrap", broker.bootstrap)
    run("bench", "rest", "--messages", "100", "--url", broker.http)
    run("bench", "grpc", "--messages", "100", "--url", broker.grpc)

    assert "penstock-bench" not in run("topic", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["compare", "--peer", "kafka=@12"], "--peer kafka=@12: expected name=host:port"),
        (["compare", "--peer", "kafka=h:1@x"], "--peer kafka=h:1@x: expected name=host:port"),
        (["produce", "--codec", "rar", "--no-limits"], "librdkafka rejects a setting"),
        (
            ["produce", "--set", "no.such=1", "--no-limits"],
            "the broker did not start: penstock: unknown setting",
        ),
        (["rest", "--url", "127.0.0.1:1"], "127.0.0.1:1: "),
        (["grpc", "--url", "127.0.0.1:1"], "127.0.0.1:1: "),
        (["websocket", "--url", "127.0.0.1:1"], "127.0.0.1:1: "),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    run: Run, broker: BrokerProcess, arguments: list[str], complaint: str
) -> None:
    is_given = "--set" in arguments or "--url" in arguments
    target = [] if is_given else ["--bootstrap", broker.bootstrap]

    ended = run("bench", *arguments, *target)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1].startswith(f"penstock: {complaint}")
