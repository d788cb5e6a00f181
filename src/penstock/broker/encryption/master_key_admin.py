"""The master keys of any node, as operators see and rotate them on any other one.

    MasterKeyAdmin (every node) ── rotate, describe ──► the node that is meant ──► KeyRotation

A node that serves no clients has keys as well: those of the quorum's log.
"""

from collections.abc import Callable
from typing import TypeAlias

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import (
    DescribeMasterKeys,
    MasterKeysReply,
    Respond,
    RotateMasterKey,
    RotateMasterKeyReply,
    RpcError,
    RpcReply,
    RpcRequest,
)
from penstock.broker.encryption.key_rotation import KeyRotation, KeyStatus, Rotated
from penstock.core.model import ApiError, ErrorKind, NodeId

# A key service may take long, and whoever asks waits no longer than this.
ROTATE_MS = 25_000
DESCRIBE_MS = 5_000
NOT_ENCRYPTED = ApiError(
    ErrorKind.INVALID_REQUEST, "the node does not encrypt what it stores: security.encryption is off"
)
OnRotated: TypeAlias = Callable[[RotateMasterKeyReply | ApiError], None]
OnDescribed: TypeAlias = Callable[[MasterKeysReply | ApiError], None]


class MasterKeyAdmin:
    """Rotates and describes the master keys of this node, and has other nodes do it."""

    def __init__(
        self,
        rpc: PeerRpc,
        node_id: NodeId,
        rotation: KeyRotation | None,
        nodes: Callable[[], list[NodeId]],
    ) -> None:
        """`nodes` returns all that there are, brokers or not."""
        self.nodes = nodes
        self._rpc = rpc
        self._node_id = node_id
        self._rotation = rotation
        rpc.serve(RotateMasterKey, self._on_rotate)
        rpc.serve(DescribeMasterKeys, self._on_describe)

    def rotate(self, node: NodeId, done: OnRotated, *, reseal: bool) -> None:
        """Have a node go on with another master key; `done` is called when it does, or says why not."""

        def answered(reply: RpcReply | None) -> None:
            if not isinstance(reply, RotateMasterKeyReply):
                done(_silent(node))
            elif reply.error is not None:
                done(ApiError(reply.error.kind, reply.error.detail))
            else:
                done(reply)

        if node == self._node_id:
            self._rotate_here(answered, reseal=reseal)
        else:
            self._call(node, RotateMasterKey(reseal), ROTATE_MS, answered)

    def describe(self, node: NodeId, done: OnDescribed) -> None:
        """The keys of a node, and what it does about them."""

        def answered(reply: RpcReply | None) -> None:
            done(reply if isinstance(reply, MasterKeysReply) else _silent(node))

        if node == self._node_id:
            answered(self._described())
        else:
            self._call(node, DescribeMasterKeys(), DESCRIBE_MS, answered)

    def _call(
        self, node: NodeId, question: RpcRequest, timeout_ms: int, answered: Callable[[RpcReply | None], None]
    ) -> None:
        if not self._rpc.call(node, question, timeout_ms, answered):
            answered(None)

    def _rotate_here(self, respond: Callable[[RotateMasterKeyReply], None], *, reseal: bool) -> None:
        def rotated(outcome: Rotated | ApiError) -> None:
            if isinstance(outcome, ApiError):
                respond(RotateMasterKeyReply(error=RpcError(outcome.kind, outcome.detail)))
            else:
                respond(RotateMasterKeyReply(outcome.current, outcome.is_new))

        if self._rotation is None:
            rotated(NOT_ENCRYPTED)
        else:
            self._rotation.rotate(rotated, reseal=reseal)

    def _described(self) -> MasterKeysReply:
        return MasterKeysReply() if self._rotation is None else _reply_of(self._rotation.status)

    def _on_rotate(self, _peer: Peer, request: RotateMasterKey, respond: Respond) -> None:
        self._rotate_here(respond, reseal=request.reseal)

    def _on_describe(self, _peer: Peer, _request: DescribeMasterKeys, respond: Respond) -> None:
        respond(self._described())


def _reply_of(status: KeyStatus) -> MasterKeysReply:
    reseal = status.reseal
    return MasterKeysReply(
        service=status.service,
        current=status.current,
        created_ms=status.created_ms,
        phase=status.phase.value,
        rotated_ms=status.rotated_ms,
        logs_total=status.logs_total,
        logs_left=status.logs_left,
        keys=tuple((use.name, use.uses, use.examples) for use in status.keys),
        resealed_bytes=reseal.bytes_done,
        reseal_logs_total=reseal.logs_total,
        reseal_logs_left=reseal.logs_left,
        left_out=reseal.left_out[:_LEFT_OUT_MAX],
        resealed_ms=status.resealed_ms,
        problem=status.problem,
    )


_LEFT_OUT_MAX = 20


def _silent(node: NodeId) -> ApiError:
    return ApiError(ErrorKind.TIMED_OUT, f"node {node} did not respond in time, or cannot be reached")
