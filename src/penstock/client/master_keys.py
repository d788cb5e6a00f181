"""The master keys of encryption at rest, as an administrator sees and rotates them."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.describe_master_keys import (
    DescribeMasterKeysRequest,
    DescribeMasterKeysResponse,
    DescribeMasterKeysResponseNode,
)
from penstock.core.protocol.messages.rotate_master_key import RotateMasterKeyRequest, RotateMasterKeyResponse

IDLE = "idle"


@dataclass(frozen=True, slots=True)
class MasterKeyUse:
    """A master key that a node needs: how many things on its disk are under it, and some of them."""

    key: str
    uses: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MasterKeyStatus:
    """The keys of a node, and what it does about them; times are in ms, -1 if not known.

    `key` is the current one, and `phase` is idle, asking, rewrapping or resealing. A node that could not be
    asked has an `error`, and one whose last rotation or reseal went wrong a `problem`.
    """

    node_id: int
    is_encrypted: bool
    service: str
    key: str
    created_ms: int
    phase: str
    rotated_ms: int
    logs: int
    logs_left: int
    needed: tuple[MasterKeyUse, ...]
    resealed_bytes: int
    reseal_logs: int
    reseal_logs_left: int
    left_out: tuple[str, ...]
    resealed_ms: int
    problem: str
    error: str | None

    @property
    def is_idle(self) -> bool:
        return self.phase == IDLE


@dataclass(frozen=True, slots=True)
class MasterKeyRotation:
    """What came of asking a node for another key: the current one now, or the error."""

    node_id: int
    key: str
    is_new: bool
    error: str | None


class MasterKeyClient:
    """Rotates the master keys of nodes, through any broker."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def status(self, node: int | None = None) -> list[MasterKeyStatus]:
        """The keys of this node, or of every one."""
        answer: DescribeMasterKeysResponse = self._ask(
            DescribeMasterKeysRequest(node_ids=() if node is None else (node,))
        )
        if answer.error_code != ErrorCode.NONE:
            raise ClientError(f"master keys: {_error(answer.error_code, answer.error_message)}")
        return [_status(row) for row in answer.nodes]

    def rotate(self, node: int, *, reseal: bool = False) -> MasterKeyRotation:
        """Have a node go on with another key; what follows from it goes on by itself."""
        answer: RotateMasterKeyResponse = self._ask(RotateMasterKeyRequest(node_id=node, reseal=reseal))
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise ClientError(f"master keys: {answer.error_message}")
        error = _error(answer.error_code, answer.error_message)
        return MasterKeyRotation(node, answer.key, answer.is_new, error)

    def _ask(self, request: Message) -> Any:
        connection: BrokerConnection
        with closing(connect(self._endpoint)) as connection:
            try:
                return connection.ask(request)
            except KeyError:
                # The broker has announced no such API.
                raise ClientError("the broker is too old for master keys: upgrade it") from None


def _error(code: int, message: str | None) -> str | None:
    return None if code == ErrorCode.NONE else message or ErrorCode(code).name.lower().replace("_", " ")


def _status(row: DescribeMasterKeysResponseNode) -> MasterKeyStatus:
    return MasterKeyStatus(
        row.node_id,
        bool(row.service),
        row.service,
        row.current,
        row.created_ms,
        row.phase,
        row.rotated_ms,
        row.logs_total,
        row.logs_left,
        tuple(MasterKeyUse(each.name, each.uses, tuple(each.examples)) for each in row.keys),
        row.resealed_bytes,
        row.reseal_logs_total,
        row.reseal_logs_left,
        tuple(row.left_out),
        row.resealed_ms,
        row.problem,
        _error(row.error_code, row.error_message),
    )
