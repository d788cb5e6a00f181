"""The examples, run as a user would run them."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.client import BulkProducer, Endpoint
from penstock.spark.metrics.configuration import MetricsConfig, load

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipeline"
SECONDS_MAX = 240


@pytest.fixture
def filled(servers: str, topic: str) -> str:
    """A topic with fifty measurements and something else."""
    points = [
        {"name": "cpu", "value": index, "timestamp": 1_763_200_000_000 + index, "client": "c"}
        for index in range(50)
    ]
    sender = BulkProducer(Endpoint(servers))
    sender.send(topic, [*(json.dumps(point).encode() for point in points), b"oops"])
    sender.finish()
    return topic


def run(command: list[str], directory: Path, **variables: str) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    environment.setdefault("SPARK_HOME", str(Path(command[0]).parents[1]))
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def spark_command(name: str) -> str:
    """A command of the pip install, wherever that is."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "bin" / name)


def test_the_example_file_is_a_configuration() -> None:
    config = load(MetricsConfig, EXAMPLES / "metrics.yaml", {}, {})

    assert config == load(MetricsConfig, None, {"audit.fail": "yes"}, {})


def test_the_pipeline_runs_under_spark_submit(servers: str, filled: str, tmp_path: Path) -> None:
    settings = {"topics.inbound": filled, "topics.dead_letter": f"{filled}.dlq", "groups.ingest": filled}
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    conf = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"]
    program = [str(EXAMPLES / "submit.py"), "--config", str(EXAMPLES / "metrics.yaml")]

    run(
        [spark_command("spark-submit"), "--master", "local[2]", *conf, *program, *chosen],
        tmp_path,
        PENSTOCK_BOOTSTRAP=servers,
        PENSTOCK_PIPELINE_STATE=str(tmp_path / "state"),
    )

    assert DeltaTable(str(tmp_path / "state" / "lake" / "raw")).to_pyarrow_dataset().count_rows() == 50


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None,
    reason="declarative pipelines need Spark Connect: pip install 'pyspark[pipelines]'",
)
def test_the_declarative_example_fills_its_tables(servers: str, filled: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "declarative", tmp_path / "pipeline")
    spec = tmp_path / "pipeline" / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/penstock-declarative", tmp_path.as_uri()))

    run(
        [spark_command("spark-pipelines"), "run", "--spec", str(spec)],
        tmp_path,
        PENSTOCK_BOOTSTRAP=servers,
        PENSTOCK_TOPIC=filled,
    )

    rows = {
        name: sum(
            pq.read_metadata(file).num_rows
            for file in (tmp_path / "spark-warehouse" / name).glob("*.parquet")
        )
        for name in ("measurements", "malformed", "rollup_1m")
    }
    assert rows == {"measurements": 50, "malformed": 1, "rollup_1m": 1}
