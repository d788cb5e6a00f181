"""The way to the coordinators of delayed records: on this node without a message, on others with one.

A request that got no reply may have been carried out: to schedule a record again under the same id is safe.
"""

from typing import Any, get_args

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.rpc import Respond, RpcReply, SubmitDelayCommand, SubmitDelayCommandReply
from penstock.broker.coordinator.delays import DelayService
from penstock.broker.queues.command_codec import decode_command, decode_reply, encode_command, encode_reply
from penstock.broker.queues.peers import COMMAND_TIMEOUT_MS, UNREACHABLE
from penstock.core.delays import ClientDelayCommand
from penstock.core.model import ApiError, ErrorKind, NodeId, ProtocolError

_KINDS: tuple[type[Any], ...] = get_args(ClientDelayCommand)


class DelayPeers:
    """Sends commands to the node that coordinates their partition, and serves those of others."""

    def __init__(self, rpc: PeerRpc, node_id: NodeId) -> None:
        self._rpc = rpc
        self._node_id = node_id
        self._delays: DelayService | None = None
        rpc.serve(SubmitDelayCommand, self._on_submit)

    def serve(self, delays: DelayService) -> None:
        """Have this carry out commands; before, this node refuses them."""
        self._delays = delays

    def submit(self, command: ClientDelayCommand) -> None:
        """Have the partition's coordinator decide; the callback gets the reply, perhaps at once."""
        node = UNREACHABLE if self._delays is None else self._delays.leader_at(command.partition)
        if isinstance(node, ApiError):
            command.on_reply(node)
        elif node == self._node_id and self._delays is not None:
            self._delays.submit(command)
        else:

            def answered(reply: RpcReply | None) -> None:
                command.on_reply(_read(reply))

            try:
                question = SubmitDelayCommand(*encode_command(command))
            except ProtocolError as error:
                command.on_reply(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
                return
            if not self._rpc.call(node, question, COMMAND_TIMEOUT_MS, answered):
                command.on_reply(UNREACHABLE)

    def _on_submit(self, _peer: Peer, question: SubmitDelayCommand, respond: Respond) -> None:
        def replied(reply: Any) -> None:
            respond(SubmitDelayCommandReply(*encode_reply(reply)))

        try:
            command = decode_command(question.name, question.content, replied)
        except ProtocolError as error:
            replied(ApiError(ErrorKind.INVALID_REQUEST, str(error)))
            return
        if self._delays is None or not isinstance(command, _KINDS):
            replied(UNREACHABLE)
        else:
            self._delays.submit(command)


def _read(reply: RpcReply | None) -> Any:
    if not isinstance(reply, SubmitDelayCommandReply):
        return UNREACHABLE
    try:
        return decode_reply(reply.name, reply.content)
    except ProtocolError as error:
        return ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, str(error))
