"""`penstock log` on encrypted partitions, with the keys of the node and without."""

import json
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.core.model import Offset, PartitionIndex
from penstock.security.key_services import key_service_of
from penstock.security.options import EncryptionOptions
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.sealing import KeyVault
from tests.integration.cli.test_log_commands import BATCHES, RECORDS, TOPIC, append, overwrite
from tests.support.key_vaults import CountedBytes

SIZES = LogOptions(segment_bytes=4_096, index_interval_bytes=512, is_encrypted=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a node with a keyring."""
    keyring = tmp_path / "keys"
    assert main(["keyring", "create", str(keyring)]) == 0
    file = tmp_path / "node.yaml"
    file.write_text(f"security: {{encryption: {{enabled: true, keyring: {keyring}}}}}\n")
    return file


def written(tmp_path: Path, index: int = 0) -> Path:
    service = key_service_of(EncryptionOptions(keyring=str(tmp_path / "keys")))
    vault = KeyVault(service, service.load(), CountedBytes(index * 1_000))
    log = PartitionLog.create(
        PosixDisk(str(tmp_path / "logs")),
        f"orders/{index}",
        TOPIC,
        SIZES,
        vault=vault.of(TOPIC, PartitionIndex(index)),
    )
    append(log, BATCHES)
    log.close()
    return tmp_path / "logs" / "orders" / str(index)


@pytest.fixture
def partition(tmp_path: Path, config: Path) -> Path:
    return written(tmp_path)


def verify(
    partition: Path, config: Path | None, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, object]]]:
    capsys.readouterr()
    named = [] if config is None else ["--config", str(config)]
    code = main(["log", "verify", str(partition), "--json", *named])
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_partition_is_sound_with_the_keys(
    partition: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(partition, config, capsys) == (0, [])


def test_without_keys_it_is_said_what_was_not_checked(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (finding,) = verify(partition, None, capsys)

    assert code == 0
    assert finding["meaning"] == "sealed"
    assert str(finding["what"]).startswith(f"{BATCHES} batches are encrypted")


def test_an_inspection_needs_no_keys(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["log", "inspect", str(partition), "--json"]) == 0

    [shown] = json.loads(capsys.readouterr().out)
    assert sum(segment["sealed_batches"] for segment in shown["segments"]) == BATCHES
    assert sum(segment["records"] for segment in shown["segments"]) == BATCHES * RECORDS


def test_a_segment_of_another_partition_is_damage_with_the_keys_only(
    partition: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path, 1)
    name = min(path.name for path in partition.glob("*.log"))
    overwrite(partition / name, 0, (other / name).read_bytes())

    with_keys, found = verify(partition, config, capsys)
    without, _ = verify(partition, None, capsys)

    assert (with_keys, without) == (1, 0)
    assert {one["meaning"] for one in found} == {"damage"}
    assert "not that of its segment" in str(found[0]["what"])


def test_a_key_that_is_not_there_is_named(
    partition: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys").unlink()
    assert main(["keyring", "create", str(tmp_path / "keys")]) == 0
    capsys.readouterr()

    code = main(["log", "verify", str(partition), "--config", str(config)])

    assert code == 1
    assert "is not there, and it is needed" in capsys.readouterr().err


def test_a_broken_key_table_is_damage(
    partition: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overwrite(partition / "keys", -1, b"?")

    code, found = verify(partition, config, capsys)

    assert code == 1
    assert (found[0]["file"], found[0]["meaning"]) == ("keys", "damage")


def opened(tmp_path: Path) -> PartitionLog:
    service = key_service_of(EncryptionOptions(keyring=str(tmp_path / "keys")))
    vault = KeyVault(service, service.load(), CountedBytes(9_000)).of(TOPIC, PartitionIndex(0))
    log, _ = PartitionLog.open(PosixDisk(str(tmp_path / "logs")), "orders/0", TOPIC, SIZES, vault=vault)
    return log


def test_what_was_cut_off_is_read_from_the_quarantine_with_the_keys(
    partition: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, cut = opened(tmp_path), Offset(2 * RECORDS)
    before = log.end
    log.tail_copy(cut, 1 << 30).work(PosixDisk(str(tmp_path / "logs")))
    log.truncate_to(cut)
    log.close()
    capsys.readouterr()

    assert main(["log", "quarantine", str(partition), "--records", "--config", str(config)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["offset"] for record in records] == list(range(cut, before))
    assert all(record["value"] or record["value_base64"] for record in records)

    assert main(["log", "quarantine", str(partition), "--config", str(config)]) == 0
    assert f"quarantine/{cut:020d}.cut" in capsys.readouterr().out
    assert main(["log", "quarantine", str(partition)]) == 1
    assert "encrypted: --config names the keys" in capsys.readouterr().out
    assert verify(partition, config, capsys) == (0, [])
