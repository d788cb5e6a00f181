"""An operator who has nodes go on with other master keys, and takes away those that nothing needs."""

from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_master_keys import (
    DescribeMasterKeysRequest,
    DescribeMasterKeysResponse,
)
from penstock.core.protocol.messages.rotate_master_key import RotateMasterKeyRequest, RotateMasterKeyResponse
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, VersionPolicy

IDLE = "idle"
# Between two things that it does, in steps of a producer.
STEPS = 5
PATIENCE_NS = 3 * SECOND
RESEALS = 0.5


class KeyRotator(PacedClient):
    """Asks any node about one, and then to have that one rotate, with or without a reseal."""

    def __init__(self, nodes: ClusterNodes, host: str, pace_ms: float) -> None:
        super().__init__(nodes, host, STEPS * pace_ms, VersionPolicy.NEWEST)

    def _act(self) -> None:
        node_id = self.any_node()
        request = DescribeMasterKeysRequest(node_ids=(node_id,))

        def described(reply: object) -> None:
            if isinstance(reply, DescribeMasterKeysResponse):
                self._take_away(node_id, reply)
            self._rotate(node_id)

        version = self.versions.of(DescribeMasterKeysRequest)
        self.ask(self.any_node(), request, version, described, patience_ns=PATIENCE_NS)

    def _take_away(self, node_id: int, reply: DescribeMasterKeysResponse) -> None:
        """Old keys of a node that has nothing left to do, and says that it needs none of them."""
        for row in reply.nodes:
            if row.error_code == ErrorCode.NONE and row.phase == IDLE:
                keys = self.nodes.node(node_id).keys
                assert keys is not None
                self.journal.keys_taken += keys.keep({row.current, *(key.name for key in row.keys)})

    def _rotate(self, node_id: int) -> None:
        request = RotateMasterKeyRequest(node_id=node_id, reseal=self.luck.random() < RESEALS)

        def rotated(reply: object) -> None:
            if isinstance(reply, RotateMasterKeyResponse) and reply.error_code == ErrorCode.NONE:
                self.journal.rotations += 1
            self._rest()

        version = self.versions.of(RotateMasterKeyRequest)
        self.ask(self.any_node(), request, version, rotated, patience_ns=PATIENCE_NS)
