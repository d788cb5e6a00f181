"""`PUT /v1/batches/<sink>/<batch>`: commit the transactions of a batch, all or none, once.

{"transactions": [{"transactional_id": "orders#0", "producer_id": 4000, "producer_epoch": 7}, …]}

200  {"status": "committed"}              the transactions are committed
200  {"status": "done"}                   the batch was committed before; these are not part of it
409  {"status": "refused", "reason": …}   one is not as listed; nothing was committed
400  {"status": "invalid", "reason": …}   the request cannot be understood
403  {"status": "forbidden", "reason": …}  a secured node does not let the caller use a transactional id
503  {"status": "unknown", "reason": …}   try again with the same batch
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias
from urllib.parse import unquote

import msgspec

from penstock.core.model import ApiError, ErrorKind, ProducerEpoch, ProducerId
from penstock.core.transactions import SINK_SEPARATOR, BatchDone, BatchMember
from penstock.security import AclOperation, ResourceType
from penstock.security import Resource as SecuredResource
from penstock.server.http.server import HttpRequest, HttpResponse

BATCHES_PREFIX = "/v1/batches/"
JSON = "application/json"
CommitBatches: TypeAlias = Callable[
    [str, str, Sequence[BatchMember], Callable[[BatchDone | ApiError], None]], None
]
REFUSED = (
    ErrorKind.PRODUCER_FENCED,
    ErrorKind.UNKNOWN_PRODUCER,
    ErrorKind.INVALID_TRANSACTION,
)


class ListedTransaction(msgspec.Struct, frozen=True):
    """One transaction of the body."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class BatchCommitBody(msgspec.Struct, frozen=True):
    """The body of the request."""

    transactions: tuple[ListedTransaction, ...]


class BatchResource:
    """Takes the requests of one node."""

    def __init__(self, commit: CommitBatches) -> None:
        self._commit = commit
        self._decoder = msgspec.json.Decoder(BatchCommitBody)

    def __call__(self, request: HttpRequest, respond: Callable[[HttpResponse], None]) -> None:
        names = request.path.split("/")
        try:
            sink, batch = (unquote(name, errors="strict") for name in names)
            body = self._decoder.decode(request.body)
            members = [_member(listed) for listed in body.transactions]
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            respond(_page(400, "invalid", str(error) if len(names) == 2 else "the path is <sink>/<batch>"))
            return
        if request.caller is not None:
            # As the Kafka API of the same name has it.
            for each in [member.transactional_id for member in members] or [sink + SINK_SEPARATOR]:
                if not request.caller.may(
                    AclOperation.WRITE, SecuredResource(ResourceType.TRANSACTIONAL_ID, each)
                ):
                    respond(_page(403, "forbidden", f"{each}: not authorized"))
                    return
        self._commit(sink, batch, members, lambda outcome: respond(_outcome(outcome)))


def _member(listed: ListedTransaction) -> BatchMember:
    listed.transactional_id.encode()
    if not 0 <= listed.producer_id < 2**63 or not 0 <= listed.producer_epoch < 2**15:
        raise ValueError(f"{listed.transactional_id}: there is no such producer")
    return BatchMember(
        listed.transactional_id, ProducerId(listed.producer_id), ProducerEpoch(listed.producer_epoch)
    )


def _outcome(outcome: BatchDone | ApiError) -> HttpResponse:
    if isinstance(outcome, BatchDone):
        return _page(200, "done" if outcome.is_repeat else "committed")
    if outcome.kind in REFUSED:
        return _page(409, "refused", str(outcome))
    if outcome.kind is ErrorKind.INVALID_REQUEST:
        return _page(400, "invalid", str(outcome))
    return _page(503, "unknown", str(outcome))


def _page(status: int, word: str, reason: str | None = None) -> HttpResponse:
    content = {"status": word} if reason is None else {"status": word, "reason": reason}
    return HttpResponse(status, msgspec.json.encode(content) + b"\n", JSON)
