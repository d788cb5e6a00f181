"""Master keys of a cluster under load: rotated, old segments resealed, and a node killed in the middle."""

from contextlib import suppress
from pathlib import Path

from penstock.client.endpoint import ClientError, Endpoint
from penstock.client.master_keys import MasterKeyClient, MasterKeyStatus
from penstock.security.key_services import KeyringKeys
from tests.cluster.readers import read_everything
from tests.cluster.stage import PARTITIONS, TOPIC, stage
from tests.support.clusters import ClusterProcesses, until

NOW_MS = 1_794_997_800_000
NODES = (1, 2, 3)
SECONDS_MAX = 120.0


def finished(cluster: ClusterProcesses, key: str) -> list[MasterKeyStatus] | None:
    """What every node says, once none has anything to do and none needs another key."""
    with suppress(ClientError, OSError):
        host, port = cluster.address(cluster.running[0])
        found = MasterKeyClient(Endpoint(f"{host}:{port}")).status()
        is_done = all(one.is_idle and [use.key for use in one.needed] == [key] for one in found)
        if len(found) == len(NODES) and is_done:
            return found
    return None


def test_a_rotation_with_a_kill_in_it_loses_nothing_and_the_old_key_can_be_removed(tmp_path: Path) -> None:
    ring = tmp_path / "keyring"
    keyring = KeyringKeys(str(ring))
    old = keyring.create(NOW_MS)
    settings = (
        "security.encryption.enabled=true",
        f"security.encryption.keyring={ring}",
        # A pass that takes some seconds also where nobody else is busy, and full segments for it.
        "security.encryption.reseal_bytes_per_second=65536",
        "storage.segment_bytes=16384",
    )

    with stage(tmp_path, *settings, rate=300) as on:
        cluster = on.cluster
        on.load.await_acknowledged(2_000)
        client = MasterKeyClient(Endpoint(cluster.bootstrap))
        rotated = [client.rotate(node, reseal=True) for node in NODES]
        new = keyring.load().current
        assert [(one.error, one.key) for one in rotated] == [(None, new)] * len(NODES)
        assert new != old

        def is_resealing() -> bool:
            return client.status(2)[0].phase == "resealing"

        until(is_resealing, "node 2 reseals")
        cluster.nodes[2].kill()
        cluster.nodes[2].launch()
        cluster.nodes[2].await_ready()
        found = until(lambda: finished(cluster, new), "no node needs the old key", SECONDS_MAX)
        on.await_in_sync()
        verdict = on.finish()

        assert all(one.left_out == () for one in found)
        assert verdict.anomalies == []
        assert verdict.failed == []
        assert verdict.acknowledged == verdict.sent > 2_000

        keyring.remove(old)
        for number in NODES:
            cluster.nodes[number].kill()
        for number in NODES:
            cluster.nodes[number].launch()
        for number in NODES:
            cluster.nodes[number].await_ready()
        everything = read_everything(cluster.bootstrap, TOPIC, PARTITIONS, cluster.login)
        assert sum(map(len, everything.values())) >= verdict.acknowledged
