from pathlib import Path

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.run.session import (
    GIBIBYTE,
    MachineResources,
    SparkSessionOptions,
    configuration,
    cores_of,
    defaults,
    is_local,
)

MACHINE = MachineResources(cores=6, memory_bytes=8 * GIBIBYTE)


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[*]", 6),
        ("local[2,4]", 2),
        ("local-cluster[2,3,1024]", 6),
        ("local-cluster[2, 1, 1024]", 2),
        ("spark://example:7077", None),
        ("yarn", None),
    ],
)
def test_a_master_says_how_many_tasks_run_at_once(master: str, cores: int | None) -> None:
    assert cores_of(master, MACHINE) == cores


@pytest.mark.parametrize("master", ["", "locl[2]", "local[x]", "localhost:7077"])
def test_what_is_no_master_is_refused_by_name(master: str) -> None:
    with pytest.raises(SparkOptionError, match="option master: "):
        cores_of(master, MACHINE)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://example:7077", False),
    ],
)
def test_a_session_on_this_machine_binds_to_loopback_and_no_other_does(master: str, local: bool) -> None:
    conf = defaults(master, MACHINE, Path("/state"))

    assert is_local(master) is local
    assert (conf.get("spark.driver.bindAddress") == "127.0.0.1") is local


@pytest.mark.parametrize(("gibibytes", "memory"), [(2, "1024m"), (8, "2048m"), (64, "4096m")])
def test_the_driver_gets_a_quarter_of_the_memory_within_bounds(gibibytes: int, memory: str) -> None:
    conf = defaults("local[*]", MachineResources(2, gibibytes * GIBIBYTE), Path("/state"))

    assert conf["spark.driver.memory"] == memory


def test_a_shuffle_has_as_many_tasks_as_cores_where_they_are_known() -> None:
    assert defaults("local[4]", MACHINE, Path("/state"))["spark.sql.shuffle.partitions"] == "4"
    assert "spark.sql.shuffle.partitions" not in defaults("spark://example:7077", MACHINE, Path("/state"))


def test_what_is_asked_for_wins_and_options_for_java_add_up() -> None:
    asked = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss4m"}

    conf = configuration(SparkSessionOptions("a name", Path("/state"), "local[1]", asked))

    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.master"] == "local[1]"
    assert conf["spark.driver.extraJavaOptions"] == (
        "-Dlog4j2.configurationFile=file:///state/log4j2.properties -Xss4m"
    )
