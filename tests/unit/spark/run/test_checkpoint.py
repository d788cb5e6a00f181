from pathlib import Path

import pytest

from penstock.spark.run.checkpoint import MARKER, ForeignCheckpoint, claim_checkpoint

IDENTITY = {"topic": "metrics.inbound", "watermark": "10 minutes"}


def test_a_pipeline_comes_back_to_its_own_checkpoint(tmp_path: Path) -> None:
    for _ in range(2):
        claim_checkpoint(tmp_path / "new", "metrics", IDENTITY)

    assert [path.name for path in (tmp_path / "new").iterdir()] == [MARKER]


def test_the_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    claim_checkpoint(tmp_path, "metrics", IDENTITY)

    with pytest.raises(ForeignCheckpoint, match=f"{tmp_path} is a checkpoint of the pipeline 'metrics'"):
        claim_checkpoint(tmp_path, "orders", IDENTITY)


def test_a_setting_that_changed_under_a_checkpoint_is_named(tmp_path: Path) -> None:
    claim_checkpoint(tmp_path, "metrics", IDENTITY)

    with pytest.raises(ForeignCheckpoint, match=r"topic was 'metrics\.inbound' and is 'other'") as refused:
        claim_checkpoint(tmp_path, "metrics", {**IDENTITY, "topic": "other"})

    assert "watermark" not in str(refused.value)


def test_a_checkpoint_that_somebody_else_made_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "ingest"
    (foreign / "offsets").mkdir(parents=True)
    (foreign / "metadata").write_text("{}")

    with pytest.raises(ForeignCheckpoint, match=f"{foreign} holds a checkpoint"):
        claim_checkpoint(tmp_path, "metrics", IDENTITY)


def test_a_damaged_note_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("{ not JSON")

    with pytest.raises(ForeignCheckpoint):
        claim_checkpoint(tmp_path, "metrics", IDENTITY)


def test_a_checkpoint_on_another_machine_is_left_to_spark(tmp_path: Path) -> None:
    claim_checkpoint(Path("hdfs://example/checkpoint"), "metrics", IDENTITY)

    assert list(tmp_path.iterdir()) == []
