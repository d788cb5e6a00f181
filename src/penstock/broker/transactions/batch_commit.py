"""Batch commit: a job's driver has many transactions committed at once, by whichever node it asks.

    driver ── BatchCommit, or PUT /v1/batches ──► BatchCommitService ── SubmitBatch ──► the sink's coordinator
                                                                                          │ one record
                                                                       markers, one transaction at a time

The tasks of a batch write in transactions of their own, under the ids `<sink>#<task>`, and leave them open.
The driver lists them under the key (sink, batch). All are committed, or none if one of them is not as it is
listed; afterwards what is written in the epochs listed is fenced. Asked again with the same key, the
coordinator says that the batch is done, however often and whatever is listed: what the tasks of a repeated
batch wrote is aborted when they begin anew, or time out.

A reply that was lost says nothing about the outcome: ask again.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import Respond, RpcError, RpcReply, SubmitBatch, SubmitBatchReply
from penstock.broker.transactions.peers import TransactionCoordinators
from penstock.core.model import ApiError, ErrorKind, NodeId, ProducerEpoch, ProducerId
from penstock.core.transactions import SINK_SEPARATOR, BatchDone, BatchMember, CommitBatch, Reply

TIMEOUT_MS = 10_000
# Together with the members they must fit into a record.
NAME_CHARS_MAX = 1_000
OnBatchDone: TypeAlias = Callable[[BatchDone | ApiError], None]
BAD_SINK = ApiError(
    ErrorKind.INVALID_REQUEST, f"a sink has 1 to {NAME_CHARS_MAX} characters, and no {SINK_SEPARATOR} in it"
)
BAD_BATCH = ApiError(ErrorKind.INVALID_REQUEST, f"a batch has 1 to {NAME_CHARS_MAX} characters")
LOST = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE, "the coordinator did not reply; ask again with the same batch"
)


class BatchCommitService:
    """Passes batches to the coordinator of their sink."""

    def __init__(self, rpc: PeerRpc, node_id: NodeId) -> None:
        self._rpc = rpc
        self._node_id = node_id
        self._coordinators: TransactionCoordinators | None = None
        rpc.serve(SubmitBatch, self._on_submit)

    def serve(self, coordinators: TransactionCoordinators) -> None:
        """Commit batches from now on."""
        self._coordinators = coordinators

    def commit(self, sink: str, batch: str, members: Sequence[BatchMember], done: OnBatchDone) -> None:
        """Commit the transactions; `done` is called once, when the outcome is durable."""

        def located(node: NodeId | ApiError) -> None:
            if isinstance(node, ApiError):
                done(node)
            elif node == self._node_id:
                self._commit_here(sink, batch, members, done)
            elif not self._rpc.call(node, SubmitBatch(sink, batch, tuple(members)), TIMEOUT_MS, answered):
                done(LOST)

        def answered(reply: RpcReply | None) -> None:
            done(_outcome(reply))

        error = _problem_with(sink, batch)
        if error is not None:
            done(error)
        elif self._coordinators is None:
            done(LOST)
        else:
            self._coordinators.locate(sink, located)

    def _commit_here(self, sink: str, batch: str, members: Sequence[BatchMember], done: OnBatchDone) -> None:
        def replied(reply: Reply) -> None:
            done(reply if isinstance(reply, BatchDone | ApiError) else LOST)

        assert self._coordinators is not None
        self._coordinators.submit(
            CommitBatch(on_reply=replied, sink=sink, batch=batch, members=tuple(members))
        )

    def _on_submit(self, _peer: Peer, question: SubmitBatch, respond: Respond) -> None:
        def done(reply: BatchDone | ApiError) -> None:
            if isinstance(reply, ApiError):
                respond(SubmitBatchReply(error=RpcError(reply.kind, reply.detail)))
            else:
                respond(SubmitBatchReply(reply.is_repeat))

        if self._coordinators is not None:
            members = [
                BatchMember(transactional_id, ProducerId(producer_id), ProducerEpoch(epoch))
                for transactional_id, producer_id, epoch in question.members
            ]
            self._commit_here(question.sink, question.batch, members, done)


def _problem_with(sink: str, batch: str) -> ApiError | None:
    if not 0 < len(sink) <= NAME_CHARS_MAX or SINK_SEPARATOR in sink:
        return BAD_SINK
    return None if 0 < len(batch) <= NAME_CHARS_MAX else BAD_BATCH


def _outcome(reply: RpcReply | None) -> BatchDone | ApiError:
    if not isinstance(reply, SubmitBatchReply):
        return LOST
    if reply.error is not None:
        return ApiError(reply.error.kind, reply.error.detail)
    return BatchDone(reply.is_repeat)
