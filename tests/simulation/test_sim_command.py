"""`penstock sim` as a person or a script sees it."""

import json

import pytest

from penstock.cli import main
from penstock.sim.cluster import SimulatedClusterOptions
from penstock.sim.world import RunResult


def test_every_run_is_shown_with_its_seed_faults_and_result(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sim", "--nodes", "1", "--seed", "7", "--runs", "2"])

    first, second, summary, faults, visited, *names = capsys.readouterr().out.splitlines()
    assert code == 0
    assert first.startswith("seed 7 ok: ")
    assert ", faults " in first
    assert "events/s" in first
    assert second.startswith("seed 8 ok: ")
    assert summary.startswith("seeds 7 to 8: 2 runs, ")
    assert summary.endswith("no anomaly")
    assert faults.startswith("faults ")
    assert visited == "visited, and in how many runs"
    assert "log.checkpoints" in [name.split()[0] for name in names]


def test_json_is_one_object_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sim", "--nodes", "1", "--seed", "7", "--runs", "2", "--json"])

    verdicts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [(verdict["seed"], verdict["passed"]) for verdict in verdicts] == [(7, True), (8, True)]
    assert all(verdict["visited"]["group.commits"] > 0 for verdict in verdicts)


def test_without_a_seed_one_is_drawn_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--nodes", "1"]) == 0

    assert capsys.readouterr().out.startswith("seed ")


def test_a_failing_seed_is_named_with_the_way_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(seed: int, options: SimulatedClusterOptions) -> RunResult:
        return RunResult(seed, ("lost: 1 answered request",), 10, 5, 100, 1000, {"kill": 1}, "cafe")

    monkeypatch.setattr("penstock.sim.cluster.run_cluster", fail)

    code = main(["sim", "--seed", "5", "--runs", "2", "--nodes", "3"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[0].startswith("seed 5 FAILED: ")
    assert lines[1:3] == ["    lost: 1 answered request", "    replay: penstock sim --seed 5 --nodes 3"]
    assert lines[-2].endswith("2 FAILED")


def test_a_defect_of_the_simulator_fails_its_seed_and_not_the_runs_that_follow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_first(seed: int, options: SimulatedClusterOptions) -> RunResult:
        if seed == 5:
            raise IndexError("no report")
        return RunResult(seed, (), 10, 5, 100, 1000, {}, "cafe")

    monkeypatch.setattr("penstock.sim.cluster.run_cluster", fail_first)

    code = main(["sim", "--seed", "5", "--runs", "2"])

    printed = capsys.readouterr()
    assert code == 1
    assert printed.out.splitlines()[1:3] == [
        "    the simulator failed: IndexError: no report",
        "    replay: penstock sim --seed 5",
    ]
    assert "seed 6 ok" in printed.out
    assert "fail_first" in printed.err


def test_a_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--runs", "0"]) == 2

    assert "runs" in capsys.readouterr().err


def test_as_many_nodes_run_as_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def pass_by(seed: int, options: SimulatedClusterOptions) -> RunResult:
        sizes.append(options.nodes)
        return RunResult(seed, (), 10, 5, 100, 1000, {}, "cafe")

    monkeypatch.setattr("penstock.sim.cluster.run_cluster", pass_by)

    assert main(["sim", "--seed", "3", "--nodes", "5"]) == 0
    assert main(["sim", "--seed", "3"]) == 0

    assert sizes == [5, 3]
    assert capsys.readouterr().out.startswith("seed 3 ok: ")


def test_every_run_has_queues_if_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[SimulatedClusterOptions] = []

    def fail(seed: int, options: SimulatedClusterOptions) -> RunResult:
        seen.append(options)
        return RunResult(seed, ("lost: a record",), 10, 5, 100, 1000, {}, "cafe")

    monkeypatch.setattr("penstock.sim.cluster.run_cluster", fail)

    assert main(["sim", "--seed", "3", "--runs", "5", "--queues"]) == 1

    assert all(options.queue_consumers for options in seen)
    assert "    replay: penstock sim --seed 3 --queues" in capsys.readouterr().out.splitlines()
