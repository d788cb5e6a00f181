import json

from tests.integration.cli.conftest import Run


def test_status_shows_brokers_and_that_nothing_is_wrong(run: Run) -> None:
    run("topic", "create", "healthy", "--partitions", "2")

    done = run("cluster", "status")

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith("cluster ")
    assert lines[0].endswith(", controller 1")
    assert lines[1].split() == ["NODE", "ADDRESS", "STATE", "RACK", "LEADS", "REPLICAS"]
    assert lines[2].split()[0::2] == ["1", "running", "2"]
    assert lines[3] == "2 partitions: 0 offline, 0 under-replicated, 0 under min ISR"


def test_status_is_json_for_programs(run: Run) -> None:
    done = run("cluster", "status", "--json")

    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert (shown["controller"], shown["offline"], shown["reassignments"]) == (1, [], [])
    assert [(one["node_id"], one["state"]) for one in shown["brokers"]] == [(1, "running")]


def test_a_cluster_that_does_not_answer_is_one_line(run: Run) -> None:
    done = run("cluster", "status", "--bootstrap", "127.0.0.1:1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "penstock: no broker at 127.0.0.1:1: connection refused "
        "(`penstock up` starts one, --bootstrap names another)\n"
    )


def test_what_contradicts_itself_is_refused_before_anybody_is_asked(run: Run) -> None:
    refused = [
        run("cluster", "elect", "t", "--bootstrap", "127.0.0.1:1"),
        run("cluster", "elect", "--preferred", "--bootstrap", "127.0.0.1:1"),
        run("cluster", "reassign", "t", "--to", "1", "--cancel", "--bootstrap", "127.0.0.1:1"),
        run("cluster", "reassign", "--to", "1", "--bootstrap", "127.0.0.1:1"),
    ]

    assert [(one.returncode, one.stderr) for one in refused] == [
        (1, "penstock: give either --preferred or --unclean\n"),
        (1, "penstock: name topics or partitions, or give --all\n"),
        (1, "penstock: give one of --to, --file and --cancel\n"),
        (1, "penstock: --to needs topics or partitions to move\n"),
    ]
